//! What the values of the chart stand for in the objects: marks, which expressions of the template take the place of.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, EnvVar, PodAffinityTerm, PodAntiAffinity, Toleration};
use sluice_manifests::{
    Amounts, Exact, InstallOptions, Installation, IssuerRef, Monitoring, NamespaceUse, PerComponent,
    PodOptions, Resources,
};

// Texts and numbers that occur nowhere else.
const NAMESPACE: &str = "mark-of-namespace";
const IMAGE: &str = "mark-of-image";
const PRIORITY_CLASS: &str = "system-mark-of-class";
const NODE_LABEL: &str = "mark-of-node";
const TAINT: &str = "mark-of-taint";
const PULL_SECRET: &str = "mark-of-secret";
const COMMON_LABEL: &str = "mark-of-common-label";
/// After the one before in the order of keys.
const MONITORING_LABEL: &str = "mark-of-monitoring-label";
const POD_LABEL: &str = "mark-of-pod-label";
const ANNOTATION: &str = "mark-of-annotation";
const TOPOLOGY: &str = "mark-of-topology";
const ARGUMENT: &str = "mark-of-argument";
const VARIABLE: &str = "mark-of-variable";
const CIDR: &str = "mark-of-cidr";
const CPU: &str = "mark-of-cpu";
const MEMORY: &str = "mark-of-memory";
const API_SERVER_PORT: u16 = 65002;
const REPLICAS: u32 = 65004;
/// In place of the options in their ConfigMap.
pub(super) const OPTIONS: &str = "mark-of-options";

/// Options with a mark for each value that something of the manifest depends on. All others only the operator reads.
pub(super) fn base() -> InstallOptions {
    let taint = Toleration { key: Some(TAINT.to_owned()), ..Toleration::default() };
    InstallOptions {
        namespace: NAMESPACE.to_owned(),
        namespace_use: NamespaceUse::Own,
        image: IMAGE.to_owned(),
        replicas: REPLICAS,
        api_server_ports: vec![API_SERVER_PORT],
        api_server_cidrs: vec![CIDR.to_owned()],
        common_labels: marked(COMMON_LABEL),
        pods: pods(),
        priority_class: Some(PRIORITY_CLASS.to_owned()),
        node_selector: marked(NODE_LABEL),
        tolerations: vec![taint],
        image_pull_secrets: vec![PULL_SECRET.to_owned()],
        resources: Resources {
            operator: Amounts { cpu: CPU.to_owned(), memory: MEMORY.to_owned() },
            ..Resources::default()
        },
        ..InstallOptions::default()
    }
}

fn marked(key: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), "x".to_owned())])
}

fn pods() -> PodOptions {
    let term = PodAffinityTerm { topology_key: TOPOLOGY.to_owned(), ..PodAffinityTerm::default() };
    let apart = PodAntiAffinity {
        required_during_scheduling_ignored_during_execution: Some(vec![term]),
        ..PodAntiAffinity::default()
    };
    let variable = EnvVar { name: VARIABLE.to_owned(), ..EnvVar::default() };
    PodOptions {
        labels: marked(POD_LABEL),
        annotations: marked(ANNOTATION),
        affinity: Exact(Affinity { pod_anti_affinity: Some(apart), ..Affinity::default() }),
        extra_args: PerComponent { operator: vec![ARGUMENT.to_owned()], ..PerComponent::default() },
        extra_env: PerComponent { operator: vec![Exact(variable)], ..PerComponent::default() },
        ..PodOptions::default()
    }
}

/// What comes with `.Values.certManager.issuerRef`: its rights do not depend on the issuer.
pub(super) fn with_issuer() -> InstallOptions {
    let issuer = IssuerRef { name: String::new(), kind: String::new(), group: String::new() };
    InstallOptions { cert_manager: Some(issuer), ..base() }
}

/// What comes where the `AAQ` installs.
pub(super) fn with_the_aaq() -> InstallOptions {
    InstallOptions { installation: Installation::Cr, ..base() }
}

/// What comes with these parts of `.Values.monitoring`.
pub(super) fn with_monitoring(service_monitor: bool, rules: bool) -> InstallOptions {
    let labels = marked(MONITORING_LABEL);
    InstallOptions { monitoring: Monitoring { service_monitor, rules, labels }, ..base() }
}

/// The text with an expression of the template in place of each mark.
pub(super) fn substitute(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let (mut substituted, mut at) = (String::new(), 0);
    while let Some((line, rest)) = lines.get(at..).and_then(<[_]>::split_first) {
        let (new, taken) = match block(line, rest) {
            Some((new, length)) => (Some(new), length + 1),
            None => (single(line, rest), if is_server_port(line) { 2 } else { 1 }),
        };
        at += taken;
        if let Some(new) = new {
            substituted.push_str(&new);
            substituted.push('\n');
        }
    }
    substituted
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// What stands for a key with its value, and how many lines the value has; `None` if the key is no mark's.
fn block(line: &str, rest: &[&str]) -> Option<(String, usize)> {
    let key = line.trim_start().trim_start_matches("- ").strip_suffix(':')?;
    let depth = indent(line) + if line.trim_start().starts_with("- ") { 2 } else { 0 };
    let is_inside =
        |line: &&&str| indent(line) > depth || (indent(line) == depth && line.trim_start().starts_with("- "));
    let value: Vec<&str> = rest.iter().take_while(is_inside).copied().collect();
    let spaces = indent(value.first()?);
    let has = |mark: &str| value.iter().any(|line| line.contains(mark));
    let whole = |values: &str| {
        format!("{{{{- with {values} }}}}\n{line}\n{{{{- toYaml . | nindent {spaces} }}}}\n{{{{- end }}}}")
    };
    let original = || substitute(&value.join("\n"));
    let new = match key {
        "nodeSelector" if has(NODE_LABEL) => whole(".Values.nodeSelector"),
        "tolerations" if has(TAINT) => whole(".Values.tolerations"),
        "imagePullSecrets" if has(PULL_SECRET) => whole(".Values.imagePullSecrets"),
        "affinity" if has(TOPOLOGY) => whole(".Values.affinity"),
        "annotations" if has(ANNOTATION) => whole(".Values.podAnnotations"),
        "to" if has(CIDR) => format!(
            "{{{{- with .Values.networkPolicy.apiServerCIDRs }}}}\n{line}\n{{{{- range . }}}}\n{0:spaces$}- ipBlock:\n\
             {0:spaces$}    cidr: {{{{ . | quote }}}}\n{{{{- end }}}}\n{{{{- end }}}}",
            ""
        ),
        "from" => format!(
            "{line}\n{{{{- with .Values.networkPolicy.metricsFrom }}}}\n{{{{- toYaml . | nindent {spaces} }}}}\n\
             {{{{- else }}}}\n{}{{{{- end }}}}",
            original()
        ),
        "topologySpreadConstraints" => {
            let own = "dict \"matchLabels\" (include \"sluice.operator\" $ | fromYaml)";
            let with_own = format!("set (deepCopy .) \"labelSelector\" ({own})");
            format!(
                "{line}\n{{{{- range .Values.topologySpreadConstraints }}}}\n\
                 {{{{- ternary ({with_own}) . (kindIs \"invalid\" .labelSelector) | list | toYaml | nindent {spaces} }}}}\n\
                 {{{{- else }}}}\n{}{{{{- end }}}}",
                original()
            )
        }
        _ => return None,
    };
    Some((new, value.len()))
}

/// What stands for a line; `None`: nothing.
fn single(line: &str, rest: &[&str]) -> Option<String> {
    let spaces = indent(line);
    let all = |values: &str| {
        format!("{{{{- with {values} }}}}\n{{{{- toYaml . | nindent {spaces} }}}}\n{{{{- end }}}}")
    };
    Some(if line.contains(MONITORING_LABEL) {
        all("merge (dict) .Values.monitoring.labels .Values.commonLabels")
    } else if line.contains(COMMON_LABEL) {
        if rest.first().is_some_and(|next| next.contains(MONITORING_LABEL)) {
            return None;
        }
        all(".Values.commonLabels")
    } else if line.contains(POD_LABEL) {
        all(".Values.podLabels")
    } else if line.contains(ARGUMENT) {
        all("(.Values.extraArgs).operator")
    } else if line.contains(VARIABLE) {
        all("(.Values.extraEnv).operator")
    } else if is_server_port(line) {
        let port = line.replace(&API_SERVER_PORT.to_string(), "{{ int . }}");
        let protocol = rest.first().copied().unwrap_or_default();
        format!("{{{{- range .Values.networkPolicy.apiServerPorts }}}}\n{port}\n{protocol}\n{{{{- end }}}}")
    } else if is_fixed_id(line) {
        format!("{{{{- if ne .Values.platform \"openshift\" }}}}\n{line}\n{{{{- end }}}}")
    } else if line.trim_start().starts_with("priorityClassName:") {
        let line = line.replace(PRIORITY_CLASS, "{{ . | quote }}");
        format!("{{{{- with .Values.priorityClassName }}}}\n{line}\n{{{{- end }}}}")
    } else if line.contains(OPTIONS) {
        let spaces = spaces + 2;
        line.replace(OPTIONS, &format!("|\n{{{{- include \"sluice.options\" . | nindent {spaces} }}}}"))
    } else {
        scalars(line)
    })
}

/// It has a line for the protocol after it.
fn is_server_port(line: &str) -> bool {
    line.trim_start() == format!("- port: {API_SERVER_PORT}")
}

/// Users and groups that OpenShift gives by the range of the namespace.
fn is_fixed_id(line: &str) -> bool {
    ["runAsUser:", "runAsGroup:", "fsGroup:"].iter().any(|field| line.trim_start().starts_with(field))
}

fn scalars(line: &str) -> String {
    let quoted = |value: &str| format!("{{{{ {value} | quote }}}}");
    let replacements = [
        (NAMESPACE.to_owned(), quoted(".Release.Namespace")),
        (IMAGE.to_owned(), quoted("include \"sluice.image\" .")),
        (
            "imagePullPolicy: IfNotPresent".to_owned(),
            "imagePullPolicy: {{ .Values.image.pullPolicy }}".to_owned(),
        ),
        (PRIORITY_CLASS.to_owned(), quoted(".Values.priorityClassName")),
        (REPLICAS.to_string(), "{{ int .Values.replicas }}".to_owned()),
        (CPU.to_owned(), quoted(".Values.resources.operator.cpu")),
        (MEMORY.to_owned(), quoted(".Values.resources.operator.memory")),
    ];
    replacements.iter().fold(line.to_owned(), |line, (mark, expression)| line.replace(mark, expression))
}
