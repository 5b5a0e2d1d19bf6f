//! The options of the installation, for the operator.

use serde_json::{Value, json};
use sluice_api::names;

use crate::object::metadata;
use crate::options::InstallOptions;
use crate::options_file::OptionsFile;

/// Named as the operator is, which alone reads it.
pub(crate) fn map(options: &InstallOptions) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(options, names::OPERATOR),
        "data": { names::OPTIONS_KEY: OptionsFile::of(options).text() },
    })
}
