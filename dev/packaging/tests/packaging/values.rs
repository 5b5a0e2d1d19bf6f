//! Values of the chart as options of an installation: they are a file of options but for what the chart has beside.

use serde_json::{Map, Value};
use sluice_manifests::{InstallOptions, NamespaceUse, OptionsFile};

/// All of `values.yaml`.
#[derive(Debug)]
pub struct Values {
    options: OptionsFile,
    pub crds: bool,
    pub rancher: bool,
}

impl Values {
    pub fn parse(text: &str) -> Self {
        let mut all: Map<String, Value> = serde_saphyr::from_str(text).unwrap();
        let crds = all.remove("crds").is_none_or(|crds| crds["enabled"] == true);
        let rancher = all.remove("rancher").is_some_and(|rancher| rancher == true);
        all.remove("extraObjects");
        if let Some(monitoring) = all.get_mut("monitoring").and_then(Value::as_object_mut) {
            monitoring.remove("dashboards");
        }
        let options = OptionsFile::parse(&serde_saphyr::to_string(&all).unwrap()).unwrap();
        Self { options, crds, rancher }
    }

    /// What `sluice render` makes of the same.
    pub fn options(&self, namespace: &str) -> InstallOptions {
        let base = InstallOptions {
            namespace: namespace.to_owned(),
            namespace_use: NamespaceUse::Own,
            ..InstallOptions::default()
        };
        let options = self.options.clone().over(base).unwrap();
        options.validate().unwrap();
        options
    }
}
