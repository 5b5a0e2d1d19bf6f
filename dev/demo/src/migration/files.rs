//! The files of `examples/migration/`.

use anyhow::Context as _;
use kube::Client;
use serde_json::{Value, json};

use crate::examples;

/// The namespace that the files name.
pub const NAMESPACE: &str = "team-b";

examples::examples! {
    TEAM = "migration/00-namespace.yaml";
    QUOTA = "migration/10-quota.yaml";
    VM = "migration/20-vm.yaml";
    HEADROOM = "migration/30-headroom.yaml";
    POLICY = "migration/31-policy.yaml";
    MIGRATION = "migration/40-migration.yaml";
}

/// Applies a file as it is left by KubeVirt's own webhooks, which do not run here.
///
/// # Errors
/// When the API server refuses an object or does not answer.
pub async fn apply(client: &Client, example: (&str, &str)) -> anyhow::Result<()> {
    // No act with VMs plays elsewhere than where its files say.
    for object in examples::objects(example, (NAMESPACE, NAMESPACE))? {
        let object = defaulted(object).with_context(|| format!("completing examples/{}", example.0))?;
        examples::apply_object(client, example.0, &object).await?;
    }
    Ok(())
}

/// What virt-api would add.
fn defaulted(mut object: Value) -> anyhow::Result<Value> {
    match object.get("kind").and_then(Value::as_str) {
        Some("VirtualMachineInstance") => {
            let spec = object.get_mut("spec").context("a VM without a spec")?;
            put(spec, "architecture", json!("amd64"))?;
            let domain = spec.get_mut("domain").context("a VM without a domain")?;
            put(domain, "machine", json!({"type": "q35"}))?;
            put(domain.get_mut("cpu").context("a VM without CPUs")?, "sockets", json!(1))?;
            put(domain.get_mut("cpu").context("a VM without CPUs")?, "threads", json!(1))?;
        }
        Some("VirtualMachineInstanceMigration") => {
            let vmi = object.pointer("/spec/vmiName").cloned().context("a migration of no VM")?;
            let metadata = object.get_mut("metadata").context("a migration without metadata")?;
            put(metadata, "labels", json!({"kubevirt.io/vmi-name": vmi}))?;
            put(metadata, "finalizers", json!(["kubevirt.io/migrationJobFinalize"]))?;
        }
        _ => {}
    }
    Ok(object)
}

fn put(object: &mut Value, name: &str, value: Value) -> anyhow::Result<()> {
    object.as_object_mut().with_context(|| format!("no place for {name}"))?.insert(name.to_owned(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ALL, MIGRATION, NAMESPACE, VM, defaulted};
    use crate::examples::objects;
    use crate::examples::tests::are_all_of;

    #[test]
    fn every_file_of_the_folder_is_played() {
        are_all_of("migration/", ALL);
    }

    #[test]
    fn what_is_in_a_file_stays() {
        let file = objects(VM, (NAMESPACE, NAMESPACE)).unwrap().remove(0);
        let vm = defaulted(file.clone()).unwrap();
        assert_eq!(vm["spec"]["domain"]["memory"], file["spec"]["domain"]["memory"]);
        assert_eq!(vm["spec"]["domain"]["cpu"], json!({"cores": 1, "sockets": 1, "threads": 1}));
        let migration = defaulted(objects(MIGRATION, (NAMESPACE, NAMESPACE)).unwrap().remove(0)).unwrap();
        assert_eq!(migration["metadata"]["labels"]["kubevirt.io/vmi-name"], "web");
        assert!(defaulted(json!({"kind": "VirtualMachineInstance"})).is_err());
    }
}
