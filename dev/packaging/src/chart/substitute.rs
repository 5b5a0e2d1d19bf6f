//! Puts expressions of the template where marks are.

use super::values::mark;

/// The text with an expression of the template in place of each mark.
pub(super) fn substitute(text: &str) -> String {
    let mut lines = text.lines();
    let mut substituted = String::new();
    while let Some(line) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        let new = if line.contains(mark::NODE_LABEL) {
            list(".Values.nodeSelector", indent)
        } else if line.contains(mark::TAINT) {
            list(".Values.tolerations", indent)
        } else if line.contains(mark::PULL_SECRET) {
            list(".Values.imagePullSecrets", indent)
        } else if line.trim_start() == format!("- port: {}", mark::API_SERVER_PORT) {
            let protocol = lines.next().unwrap_or_default();
            let port = line.replace(&mark::API_SERVER_PORT.to_string(), "{{ int . }}");
            format!(
                "{{{{- range .Values.networkPolicy.apiServerPorts }}}}\n{port}\n{protocol}\n{{{{- end }}}}"
            )
        } else {
            scalars(line)
        };
        substituted.push_str(&new);
        substituted.push('\n');
    }
    substituted
}

/// The value in place of a line that is indented so far.
fn list(value: &str, indent: usize) -> String {
    format!("{{{{- toYaml {value} | nindent {indent} }}}}")
}

fn scalars(line: &str) -> String {
    let (namespace, name) = mark::ACCOUNTS;
    let arguments = [
        (format!("--exempt-namespaces={}", mark::EXEMPT), "--exempt-namespaces", ".Values.exemptNamespaces"),
        (
            format!("--platform-accounts={namespace}:{name}"),
            "--platform-accounts",
            ".Values.platformAccounts",
        ),
    ];
    for (argument, flag, value) in arguments {
        if line.contains(&argument) {
            // It may have been quoted for its colon.
            let line = line.replace(['\'', '"'], "");
            let joined = format!("{{{{ printf \"{flag}=%s\" (join \",\" {value}) | quote }}}}");
            return line.replace(&argument, &joined);
        }
    }
    let quoted = |value: &str| format!("{{{{ {value} | quote }}}}");
    let number = |value: &str| format!("{{{{ int {value} }}}}");
    let mut replacements = vec![
        (mark::NAMESPACE.to_owned(), quoted(".Release.Namespace")),
        (mark::IMAGE.to_owned(), quoted("include \"sluice.image\" .")),
        (
            "imagePullPolicy: IfNotPresent".to_owned(),
            "imagePullPolicy: {{ .Values.image.pullPolicy }}".to_owned(),
        ),
        (mark::PRIORITY_CLASS.to_owned(), quoted(".Values.priorityClassName")),
        (mark::WEBHOOK_PORT.to_string(), number(".Values.webhook.port")),
        (mark::PROOFS.to_string(), number(".Values.balancerProofs")),
        (mark::REPLICAS.to_string(), number(".Values.replicas")),
    ];
    for component in ["controller", "webhook", "operator"] {
        for (mark, amount) in [(mark::CPU, "cpu"), (mark::MEMORY, "memory")] {
            let value = quoted(&format!(".Values.resources.{component}.{amount}"));
            replacements.push((format!("{mark}{component}"), value));
        }
    }
    replacements.iter().fold(line.to_owned(), |line, (mark, expression)| line.replace(mark, expression))
}
