//! Values that the chart is tested with: each has to render what the same options render.

/// Names and contents.
pub(crate) const CASES: [(&str, &str); 24] = [
    ("default", "{}\n"),
    (
        "mirror",
        "image: {registry: registry.example.com:5000, repository: mirror/sluice, tag: 0.1.0-rc.1, pullPolicy: Always}\n\
         imagePullSecrets: [{name: mirror}]\n",
    ),
    (
        "digest",
        "image:\n  registry: ''\n  repository: quota/sluice\n\
         \x20 digest: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n",
    ),
    ("openshift", "platform: openshift\nplatformAccounts: ['openshift-cnv:cdi-sa']\n"),
    ("host-network", "webhook: {hostNetwork: true, port: 9443}\n"),
    ("port", "webhook: {port: 10250}\n"),
    ("one-replica", "replicas: 1\n"),
    ("three-replicas", "replicas: 3\n"),
    (
        "placement",
        "nodeSelector: {node-role.kubernetes.io/infra: '', zone: a}\ntolerations:\n\
         - {key: node-role.kubernetes.io/infra, operator: Exists, effect: NoSchedule}\n\
         - {key: slow, operator: Equal, value: 'true', effect: NoExecute, tolerationSeconds: 60}\n",
    ),
    ("resources", "resources:\n  controller: {memory: 2Gi}\n  webhook: {cpu: '1', memory: 512Mi}\n"),
    (
        "spread",
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions:\n\
         [{key: kubernetes.io/arch, operator: In, values: [amd64]}]}]}}}\n\
         topologySpreadConstraints:\n\
         - {topologyKey: topology.kubernetes.io/zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}\n\
         - {topologyKey: rack, maxSkew: 2, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {rack: a}}}\n",
    ),
    (
        "labelled",
        "commonLabels: {team: platform, release: quotas}\npodLabels: {team: platform}\npodAnnotations: {note: 'true'}\n\
         monitoring: {serviceMonitor: true, rules: true, labels: {release: prometheus}}\nrancher: true\n\
         certManager: {issuerRef: {name: a}}\ninstallation: cr\n",
    ),
    (
        "extra",
        "extraArgs: {controller: ['--in-flight-grace=20s'], operator: ['--log-level=debug']}\n\
         extraEnv: {webhook: [{name: TZ, value: UTC}],\n\
        \x20 operator: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]}\n\
         webhook: {dnsPolicy: Default}\n\
         networkPolicy: {apiServerCIDRs: [192.0.2.0/24, 'fd00::/64'],\n\
        \x20 metricsFrom: [{podSelector: {matchLabels: {a: b}}}]}\n",
    ),
    ("no-priority", "priorityClassName: ''\n"),
    ("own-priority", "priorityClassName: platform\n"),
    ("shared-namespace", "sharedNamespace: true\n"),
    ("webhook-gates", "gating: webhook\n"),
    ("aaq-installs", "installation: cr\n"),
    ("exempt", "exemptNamespaces: ['kube-*', infra]\nplatformAccounts: []\n"),
    ("managed-control-plane", "balancerProofs: 12\nnetworkPolicy: {apiServerPorts: [443]}\n"),
    ("cert-manager", "certManager: {issuerRef: {name: platform, kind: ClusterIssuer}}\n"),
    ("monitoring", "monitoring: {serviceMonitor: true, rules: true, labels: {release: prometheus}}\n"),
    ("crds-apart", "crds: {enabled: false}\nrancher: true\n"),
    (
        "everything",
        "image: {repository: a/b, tag: c, pullPolicy: Never}\nimagePullSecrets: [{name: one}, {name: two}]\n\
         platform: openshift\nreplicas: 5\nresources: {operator: {memory: 128Mi}}\nnodeSelector: {a: b}\n\
         tolerations: [{operator: Exists}]\npriorityClassName: system-node-critical\nwebhook: {port: 1024}\n\
         installation: cr\ngating: webhook\nexemptNamespaces: [infra]\nplatformAccounts: ['a:b', 'c:d']\nbalancerProofs: 3\n\
         networkPolicy: {apiServerPorts: [6443, 7443]}\nrancher: true\nallowedGateRemovers: ['system:admin']\n\
         certManager: {issuerRef: {name: a}}\nmonitoring: {serviceMonitor: true}\nallowDowngrade: true\n",
    ),
];
