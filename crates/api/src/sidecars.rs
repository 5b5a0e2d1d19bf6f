//! Which containers of `AAQ.spec.configuration.sidecarEvaluators` may run in the controller's pod.
//!
//! A sidecar shares that pod: its volumes, its network, and through kubelet the Secrets of its namespace. It needs none of
//! them, so what gives it any is refused. What it may do as a process is not asked for but set.

use serde_json::Value;

use crate::names;

/// Path of the list below `spec`.
const FIELD: &str = "configuration.sidecarEvaluators";
/// Where a sidecar puts its socket (application-aware-quota's `libsidecar/sidecar.go`).
pub const SIDECAR_SOCKETS: &str = "/var/run/aaq-sockets";
/// User of all containers of the installation; another user's socket cannot be connected to.
pub const SIDECAR_USER: u32 = 65_532;
/// With this an evaluator is named in place of a container that is refused.
pub const REFUSED_SIDECAR: &str = "refused-";
/// Most of them.
pub const MOST_SIDECARS: usize = 16;
/// Secrets of the installation, by each of their names.
const OWN_SECRETS: [&str; 5] =
    [names::CA_SECRET, names::SERVING_SECRET, names::GIVEN_SECRET, "aaq-server", "aaq-server-cert"];

/// Fields that are known, so that a later one gives nothing that was not looked at. What of them is refused is refused by
/// name; of some all that is asked for is overwritten.
const FIELDS: [&str; 22] = [
    "args",
    "command",
    "env",
    "envFrom",
    "image",
    "imagePullPolicy",
    "lifecycle",
    "livenessProbe",
    "name",
    "ports",
    "readinessProbe",
    "resizePolicy",
    "resources",
    "restartPolicy",
    "securityContext",
    "startupProbe",
    "stdin",
    "stdinOnce",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "tty",
    "workingDir",
];
/// Refused in words of their own.
const VOLUMES: [&str; 2] = ["volumeMounts", "volumeDevices"];
/// Where a variable may have its value from.
const SOURCES: [&str; 4] = ["configMapKeyRef", "fieldRef", "resourceFieldRef", "secretKeyRef"];

/// A field of a container that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedSidecar {
    /// Its place in the list.
    pub place: usize,
    /// Its path: of an `AAQ` below `spec`, of an [`Evaluator`](crate::Evaluator) all of it.
    pub field: String,
    /// Why, and what to do.
    pub why: String,
}

/// All that is refused of an `AAQ` with this `spec.configuration.sidecarEvaluators`.
#[must_use]
pub fn refused_sidecars(containers: &Value) -> Vec<RefusedSidecar> {
    let containers = containers.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut refused = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for (place, container) in containers.iter().enumerate() {
        let name = text(container, "name");
        let mut refuse = |field: &str, why: String| {
            refused.push(RefusedSidecar { place, field: format!("{FIELD}[{place}].{field}"), why });
        };
        if place >= MOST_SIDECARS {
            refuse("name", format!("there are more than {MOST_SIDECARS} evaluators: remove some"));
        }
        if seen.contains(&name) {
            refuse("name", format!("there is another {name}: choose another"));
        }
        seen.push(name);
        name_of_container(name, &mut refuse);
        if text(container, "image").is_empty() {
            refuse("image", "there is none: name one".to_owned());
        }
        for field in others(container, &[&FIELDS[..], &VOLUMES].concat()) {
            refuse(field, NOT_KNOWN.to_owned());
        }
        own_volumes(container, &mut refuse);
        privileges(container, &mut refuse);
        hosts(container, &mut refuse);
        secrets(container, &mut refuse);
    }
    refused
}

/// Why a field that is not on a list is refused.
pub(crate) const NOT_KNOWN: &str = "it is not given: remove it";

/// Fields that are set and are none of these.
pub(crate) fn others<'v>(of: &'v Value, known: &[&str]) -> Vec<&'v str> {
    let set = of.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    set.map(|(field, _)| field.as_str()).filter(|field| !known.contains(field)).collect()
}

/// Which names a container may not have.
pub(crate) fn name_of_container(name: &str, refuse: &mut impl FnMut(&str, String)) {
    if !is_name(name) {
        refuse("name", "it has to be 1 to 63 lower case letters, digits and hyphens".to_owned());
    } else if [names::CONTROLLER, "aaq-controller"].contains(&name) {
        refuse("name", format!("{name} is the controller's own container: choose another"));
    }
    if name.starts_with(REFUSED_SIDECAR) {
        refuse("name", format!("a name does not begin with {REFUSED_SIDECAR}: choose another"));
    }
}

/// As the name of a container, and as that of an evaluator on the command line of the controller.
fn is_name(name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&name.len())
        && name.chars().all(is_word)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

fn own_volumes(container: &Value, refuse: &mut impl FnMut(&str, String)) {
    // That of its socket is named in upstream's examples.
    let is_other = |mount: &Value| text(mount, "mountPath").trim_end_matches('/') != SIDECAR_SOCKETS;
    for field in VOLUMES {
        if items(container, field).iter().any(is_other) {
            refuse(
                field,
                format!(
                    "the pod's volumes are the controller's: a directory for the socket is at {SIDECAR_SOCKETS}"
                ),
            );
        }
    }
}

fn privileges(container: &Value, refuse: &mut impl FnMut(&str, String)) {
    for (place, port) in items(container, "ports").iter().enumerate() {
        if port.get("hostPort").and_then(Value::as_i64).unwrap_or(0) != 0 {
            refuse(
                &format!("ports[{place}].hostPort"),
                "a port of the node is not given: remove it".to_owned(),
            );
        }
    }
    let context = container.get("securityContext").unwrap_or(&Value::Null);
    for field in ["privileged", "allowPrivilegeEscalation"] {
        if context.get(field).and_then(Value::as_bool) == Some(true) {
            refuse(&format!("securityContext.{field}"), "it is not given: remove it".to_owned());
        }
    }
    let added = context.pointer("/capabilities/add").and_then(Value::as_array);
    if added.is_some_and(|added| !added.is_empty()) {
        refuse("securityContext.capabilities.add", "none is given: remove it".to_owned());
    }
    let user = context.get("runAsUser").and_then(Value::as_i64);
    if user.is_some_and(|user| user != i64::from(SIDECAR_USER)) {
        refuse(
            "securityContext.runAsUser",
            "the controller could not connect to the socket of another user: remove it".to_owned(),
        );
    }
}

/// By these kubelet would ask other hosts, from the network of the node.
fn hosts(container: &Value, refuse: &mut impl FnMut(&str, String)) {
    for handler in
        ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle/postStart", "lifecycle/preStop"]
    {
        for way in ["httpGet", "tcpSocket"] {
            let host = container.pointer(&format!("/{handler}/{way}/host")).and_then(Value::as_str);
            if host.is_some_and(|host| !host.is_empty()) {
                let field = format!("{}.{way}.host", handler.replace('/', "."));
                refuse(&field, "another host is not asked: remove it".to_owned());
            }
        }
    }
    let claims = container.pointer("/resources/claims").and_then(Value::as_array);
    if claims.is_some_and(|claims| !claims.is_empty()) {
        refuse("resources.claims", "the pod is the controller's, which has none: remove it".to_owned());
    }
}

fn secrets(container: &Value, refuse: &mut impl FnMut(&str, String)) {
    let is_own = |name: &Value| name.as_str().is_some_and(|name| OWN_SECRETS.contains(&name));
    let why = "this Secret is the installation's own: take another".to_owned();
    for (place, variable) in items(container, "env").iter().enumerate() {
        if variable.pointer("/valueFrom/secretKeyRef/name").is_some_and(is_own) {
            refuse(&format!("env[{place}].valueFrom.secretKeyRef.name"), why.clone());
        }
        for source in variable.get("valueFrom").map(|from| others(from, &SOURCES)).unwrap_or_default() {
            refuse(&format!("env[{place}].valueFrom.{source}"), NOT_KNOWN.to_owned());
        }
    }
    for (place, source) in items(container, "envFrom").iter().enumerate() {
        if source.pointer("/secretRef/name").is_some_and(is_own) {
            refuse(&format!("envFrom[{place}].secretRef.name"), why.clone());
        }
    }
}

pub(crate) fn items<'v>(container: &'v Value, field: &str) -> &'v [Value] {
    container.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(crate) fn text<'v>(container: &'v Value, field: &str) -> &'v str {
    container.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "a test stops at what is not as it must be")]

    use serde_json::json;

    use super::*;

    fn fields(containers: &Value) -> Vec<String> {
        refused_sidecars(containers).into_iter().map(|it| it.field).collect()
    }

    /// application-aware-quota's `example_sidecars/label-sidecar` in its `AAQ`.
    #[test]
    fn upstreams_example_is_taken() {
        let label = json!({
            "name": "label-sidecar", "image": "quay.io/kubevirt/label-sidecar:latest",
            "args": ["--config", "double"], "resources": { "limits": { "memory": "64Mi" } },
            "securityContext": { "runAsUser": 65532, "capabilities": { "drop": ["ALL"] } },
            "volumeMounts": [{ "name": "sockets-dir", "mountPath": "/var/run/aaq-sockets" }],
            "env": [{ "name": "KEY", "valueFrom": { "secretKeyRef": { "name": "license", "key": "k" } } }],
        });
        assert_eq!(fields(&json!([label])), Vec::<String>::new());
        assert_eq!(fields(&Value::Null), Vec::<String>::new());
    }

    #[test]
    fn what_would_give_it_more_than_a_socket_is_refused_by_field() {
        for (field, value) in [
            ("name", json!("")),
            ("name", json!("A")),
            ("name", json!("-a")),
            ("name", json!("sluice-controller")),
            ("name", json!("aaq-controller")),
            ("image", json!("")),
            ("volumeMounts", json!([{ "name": "token", "mountPath": "/t" }])),
            ("volumeDevices", json!([{ "name": "token", "devicePath": "/t" }])),
            ("ports[1].hostPort", json!(80)),
            ("securityContext.privileged", json!(true)),
            ("securityContext.allowPrivilegeEscalation", json!(true)),
            ("securityContext.capabilities.add", json!(["NET_ADMIN"])),
            ("securityContext.runAsUser", json!(0)),
            ("name", json!("refused-0")),
            ("livenessProbe.httpGet.host", json!("127.0.0.1")),
            ("lifecycle.preStop.tcpSocket.host", json!("10.0.0.1")),
            ("resources.claims", json!([{ "name": "gpu" }])),
            ("env[0].valueFrom.secretKeyRef.name", json!("sluice-ca")),
            ("env[0].valueFrom.secretKeyRef.name", json!("aaq-server")),
            ("envFrom[0].secretRef.name", json!("sluice-webhook-cert")),
            // Kubernetes 1.34 reads files of volumes into variables; what comes next is not known.
            ("env[0].valueFrom.fileKeyRef", json!({ "volumeName": "token", "path": "token", "key": "k" })),
            ("restartPolicyRules", json!([{ "action": "Restart" }])),
        ] {
            let mut container = json!({
                "name": "a", "image": "i", "ports": [{ "containerPort": 1 }, { "hostPort": 0 }],
                "securityContext": { "capabilities": {} },
                "env": [{ "name": "X", "valueFrom": { "secretKeyRef": { "key": "k" } } }],
                "envFrom": [{ "secretRef": {} }], "resources": {},
                "livenessProbe": { "httpGet": { "port": 1 } },
                "lifecycle": { "preStop": { "tcpSocket": { "port": 1 } } },
            });
            let path = format!("/{}", field.replace("[", "/").replace("]", "").replace(".", "/"));
            let (parent, last) = path.rsplit_once('/').unwrap_or_default();
            if let Some(parent) = container.pointer_mut(parent).and_then(Value::as_object_mut) {
                parent.insert(last.to_owned(), value.clone());
            }
            assert_eq!(fields(&json!([container])), [format!("{FIELD}[0].{field}")], "{value}");
        }
    }

    #[test]
    fn each_has_a_name_of_its_own_and_there_are_not_too_many() {
        let named = |name: String| json!({ "name": name, "image": "i" });
        assert_eq!(
            fields(&json!([named("a".to_owned()), named("a".to_owned())])),
            [format!("{FIELD}[1].name")]
        );
        let many: Vec<Value> = (0..18).map(|n| named(format!("e{n}"))).collect();
        assert_eq!(fields(&json!(many)), [format!("{FIELD}[16].name"), format!("{FIELD}[17].name")]);
    }
}
