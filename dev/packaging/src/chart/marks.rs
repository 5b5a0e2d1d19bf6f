//! What the values of the chart stand for in the objects: marks, which expressions of the template take the place of.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use sluice_manifests::{
    Amounts, InstallOptions, Installation, IssuerRef, Monitoring, NamespaceUse, Resources,
};

// Texts and numbers that occur nowhere else.
const NAMESPACE: &str = "mark-of-namespace";
const IMAGE: &str = "mark-of-image";
const PRIORITY_CLASS: &str = "system-mark-of-class";
const NODE_LABEL: &str = "mark-of-node";
const TAINT: &str = "mark-of-taint";
const PULL_SECRET: &str = "mark-of-secret";
const LABEL: &str = "mark-of-label";
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
        priority_class: Some(PRIORITY_CLASS.to_owned()),
        node_selector: BTreeMap::from([(NODE_LABEL.to_owned(), "x".to_owned())]),
        tolerations: vec![taint],
        image_pull_secrets: vec![PULL_SECRET.to_owned()],
        resources: Resources {
            operator: Amounts { cpu: CPU.to_owned(), memory: MEMORY.to_owned() },
            ..Resources::default()
        },
        ..InstallOptions::default()
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
    let labels = BTreeMap::from([(LABEL.to_owned(), "x".to_owned())]);
    InstallOptions { monitoring: Monitoring { service_monitor, rules, labels }, ..base() }
}

/// The text with an expression of the template in place of each mark.
pub(super) fn substitute(text: &str) -> String {
    let mut lines = text.lines().peekable();
    let mut substituted = String::new();
    while let Some(line) = lines.next() {
        let list = lines.peek().and_then(|next| Some((list_of(next)?, indent(next))));
        let new = if let Some((value, indent)) = list {
            lines.next();
            format!("{{{{- with {value} }}}}\n{line}\n{{{{- toYaml . | nindent {indent} }}}}\n{{{{- end }}}}")
        } else if line.contains(LABEL) {
            let indent = indent(line);
            format!(
                "{{{{- with .Values.monitoring.labels }}}}\n{{{{- toYaml . | nindent {indent} }}}}\n{{{{- end }}}}"
            )
        } else if line.trim_start() == format!("- port: {API_SERVER_PORT}") {
            let protocol = lines.next().unwrap_or_default();
            let port = line.replace(&API_SERVER_PORT.to_string(), "{{ int . }}");
            format!(
                "{{{{- range .Values.networkPolicy.apiServerPorts }}}}\n{port}\n{protocol}\n{{{{- end }}}}"
            )
        } else if is_fixed_id(line) {
            format!("{{{{- if ne .Values.platform \"openshift\" }}}}\n{line}\n{{{{- end }}}}")
        } else if line.trim_start().starts_with("priorityClassName:") {
            let line = line.replace(PRIORITY_CLASS, "{{ . | quote }}");
            format!("{{{{- with .Values.priorityClassName }}}}\n{line}\n{{{{- end }}}}")
        } else if line.contains(OPTIONS) {
            let spaces = indent(line) + 2;
            line.replace(OPTIONS, &format!("|\n{{{{- include \"sluice.options\" . | nindent {spaces} }}}}"))
        } else {
            scalars(line)
        };
        substituted.push_str(&new);
        substituted.push('\n');
    }
    substituted
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The value in place of this line, and of the key before it.
fn list_of(line: &str) -> Option<&'static str> {
    let values = [
        (NODE_LABEL, ".Values.nodeSelector"),
        (TAINT, ".Values.tolerations"),
        (PULL_SECRET, ".Values.imagePullSecrets"),
    ];
    values.into_iter().find(|(mark, _)| line.contains(mark)).map(|(_, value)| value)
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
