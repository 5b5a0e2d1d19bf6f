//! What of the chart is no object: its description, values, their schema, helpers and the values that it is tested with.

mod cases;
mod schema;

use std::path::PathBuf;

use crate::Files;
use crate::yaml::HEADER;

pub(super) use cases::CASES;

const CHART: &str = "\
apiVersion: v2
name: sluice
description: Quotas for Kubernetes clusters that run virtual machines; pods wait for room instead of being refused.
type: application
version: VERSION
appVersion: VERSION
kubeVersion: '>= 1.31.0-0'
keywords: [quota, kubevirt, admission]
";

const VALUES: &str = "\
# The image of all Deployments.
image:
  registry: localhost
  repository: sluice
  # Empty: the version of the chart, unless there is a digest.
  tag: ''
  # sha256:…
  digest: ''
  pullPolicy: IfNotPresent
# Secrets that it is pulled with: [{name: …}]
imagePullSecrets: []
# generic or openshift. On OpenShift user and groups are left to the range of the namespace.
platform: generic
# Of each Deployment.
replicas: 2
# The memory is request and limit.
resources:
  controller: {cpu: 100m, memory: 256Mi}
  webhook: {cpu: 50m, memory: 192Mi}
  operator: {cpu: 20m, memory: 64Mi}
# Of all pods.
nodeSelector: {}
tolerations: []
affinity: {}
# In place of: over nodes, where it can be. One without a labelSelector is about the pods of its Deployment.
topologySpreadConstraints: []
podLabels: {}
podAnnotations: {}
# Of all objects but CRDs and what gates pods.
commonLabels: {}
# Of the container of each Deployment, after what follows from these values: {controller: [...], webhook: [...], operator: [...]}
extraArgs: {}
extraEnv: {}
# Empty: none.
priorityClassName: system-cluster-critical
# Others run in the namespace of the release too: no ResourceQuota there permits the priority class.
sharedNamespace: false
webhook:
  # 1024 or above, where a firewall lets API servers reach few ports.
  port: 8443
  # The webhook's pods have the network of their nodes, where API servers reach no pods. The namespace has to permit that
  # (label pod-security.kubernetes.io/enforce: privileged).
  hostNetwork: false
  # Default, ClusterFirst or ClusterFirstWithHostNet, in place of the one that fits hostNetwork.
  dnsPolicy: null
# always, or cr: there is nothing but the operator until there is an AAQ, and what it has made goes with the AAQ.
installation: always
# policy, or webhook: the webhook alone gates pods, as it does before Kubernetes 1.36.
gating: policy
# Namespaces whose pods are never gated, in place of the default that `sluice controller --help` shows.
exemptNamespaces: null
# ServiceAccounts (namespace:name) whose pods may name their node, in place of CDI's.
platformAccounts: null
# Usernames that may take the gate from pods, besides the controller's.
allowedGateRemovers: []
# How often an address with several API servers behind it is asked for each raise; 0: it is not trusted.
balancerProofs: 0
# true: the operator writes again what one of a newer version has written, to go back to the version of this chart.
allowDowngrade: false
networkPolicy:
  # Ports of API servers, behind their Service.
  apiServerPorts: [443, 6443, 8443]
  # Addresses that API servers have, as CIDRs. Empty: any.
  apiServerCIDRs: []
  # Who may read metrics, as `from` of a NetworkPolicy. Empty: namespaces with the label metrics: enabled.
  metricsFrom: []
# The serving certificate comes from cert-manager: {issuerRef: {name: …, kind: Issuer, group: cert-manager.io}}, of an issuer
# that writes ca.crt. Empty: the operator signs it.
certManager: {}
# For Prometheus' operator, whose CRDs have to be there.
monitoring:
  serviceMonitor: false
  # Alerts.
  rules: false
  # Labels of both, by which your Prometheus selects them.
  labels: {}
  # ConfigMaps with the dashboards, which the sidecar of Grafana's chart finds by the label grafana_dashboard.
  dashboards: false
crds:
  # false: they are there already, of application-aware-quota or applied by themselves. They are never removed.
  enabled: true
# Rights to write the status of quotas beside Rancher's webhook (Kubernetes 1.36).
rancher: false
# Objects that come and go with the release; texts may be templates.
extraObjects: []
";

const HELPERS: &str = "\
{{- define \"sluice.image\" -}}
{{- $tag := .Values.image.tag -}}
{{- if not (or $tag .Values.image.digest) }}{{ $tag = .Chart.AppVersion }}{{ end -}}
{{- with .Values.image.registry }}{{ . }}/{{ end -}}
{{- .Values.image.repository -}}
{{- with $tag }}:{{ . }}{{ end -}}
{{- with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}
{{- /* What the operator reads. The reference of the image is that of its pod. */ -}}
{{- define \"sluice.operator\" -}}
OPERATOR_LABELS
{{- end -}}
{{- define \"sluice.options\" -}}
{{- $options := omit .Values \"crds\" \"rancher\" \"extraObjects\" \"global\" -}}
{{- $_ := set $options \"image\" (pick .Values.image \"pullPolicy\") -}}
{{- $_ := set $options \"monitoring\" (omit .Values.monitoring \"dashboards\") -}}
{{- toYaml $options -}}
{{- end -}}
";

/// As [`sluice_manifests::InstallOptions::validate`], where a schema cannot say it.
const CHECK: &str = "\
{{- if or (hasPrefix \"kube-\" .Release.Namespace) (eq .Release.Namespace \"default\") }}
{{- fail (printf \"namespace: %s is a namespace of Kubernetes: give --namespace sluice-system --create-namespace\" .Release.Namespace) }}
{{- end }}
{{- if and .Values.webhook.hostNetwork (eq .Values.platform \"openshift\") }}
{{- fail \"webhook.hostNetwork: restricted-v2 of OpenShift refuses pods with the network of their node: leave it out\" }}
{{- end }}
{{- if and .Values.webhook.hostNetwork (eq (int .Values.webhook.port) 10250) }}
{{- fail \"webhook.port: 10250 is the kubelet's on every node, and with webhook.hostNetwork the webhook has the node's addresses: give another one, such as 8443, or leave webhook.hostNetwork out\" }}
{{- end }}
";

const NOTES: &str = "\
{{- if eq .Values.installation \"cr\" }}
Sluice {{ .Chart.AppVersion }} is in namespace {{ .Release.Namespace }}. An AAQ installs what gates pods, such as the one
in deploy/aaq-cr.yaml. Then wait for it:
{{- else }}
Sluice {{ .Chart.AppVersion }} is in namespace {{ .Release.Namespace }}. Its operator now puts in force what gates pods:
{{- end }}

  kubectl wait --for=create --timeout=2m aaq/aaq
  kubectl wait --for=condition=Available --timeout=5m aaq/aaq

Pods are gated in namespaces with the label application-aware-quota/enable-gating, or those that an AAQ selects:

  kubectl label namespace NAME application-aware-quota/enable-gating=

Before `helm uninstall` run `sluice uninstall --keep-objects --namespace {{ .Release.Namespace }}`: it lets go what waits.
Quotas and their definitions stay.
{{- if .Values.webhook.hostNetwork }}

The webhook has the network of its nodes: the namespace has to permit that.

  kubectl label namespace {{ .Release.Namespace }} pod-security.kubernetes.io/enforce=privileged
{{- end }}
";

const DASHBOARDS: &str = "\
{{- if .Values.monitoring.dashboards }}
{{- range $path, $_ := .Files.Glob \"dashboards/*.json\" }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: sluice-dashboard-{{ base $path | trimSuffix \".json\" }}
  namespace: {{ $.Release.Namespace | quote }}
  labels:
    {{- merge (dict \"grafana_dashboard\" \"1\" \"app.kubernetes.io/name\" \"sluice\" \"app.kubernetes.io/part-of\" \"sluice\") $.Values.commonLabels | toYaml | nindent 4 }}
data:
  {{ base $path }}: |-
{{ $.Files.Get $path | trim | indent 4 }}
{{- end }}
{{- end }}
";

const EXTRA_OBJECTS: &str = "\
{{- range .Values.extraObjects }}
---
{{ tpl (toYaml .) $ }}
{{- end }}
";

/// With the labels by which the operator's pods are found.
fn helpers(operator: &str) -> String {
    HELPERS.replace("OPERATOR_LABELS", operator.trim_end())
}

pub(super) fn files(operator: &str) -> Files {
    let chart = CHART.replace("VERSION", env!("CARGO_PKG_VERSION"));
    let mut files = Files::from([
        (PathBuf::from("Chart.yaml"), format!("{HEADER}{chart}")),
        (PathBuf::from("values.yaml"), format!("{HEADER}{VALUES}")),
        (PathBuf::from("values.schema.json"), format!("{:#}\n", schema::schema())),
        (PathBuf::from("templates/_helpers.tpl"), helpers(operator)),
        (PathBuf::from("templates/dashboards.yaml"), DASHBOARDS.to_owned()),
        (PathBuf::from("templates/extra-objects.yaml"), EXTRA_OBJECTS.to_owned()),
        (PathBuf::from("templates/check.yaml"), CHECK.to_owned()),
        (PathBuf::from("templates/NOTES.txt"), NOTES.to_owned()),
    ]);
    files.extend(super::cases().into_iter().map(|(path, text)| (path, text.to_owned())));
    files
}
