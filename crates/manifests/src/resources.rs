//! What the containers ask for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the container of each Deployment asks for. Read from a file, what is left out keeps its default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Given")]
pub struct Resources {
    /// Of the controller. Its memory grows with pods and quotas.
    pub controller: Amounts,
    pub webhook: Amounts,
    pub operator: Amounts,
}

/// What one container asks for, as quantities of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Amounts {
    /// Request. There is no limit: throttling would add to the time that each creation of a pod takes.
    pub cpu: String,
    /// Request and limit.
    pub memory: String,
}

/// [`Resources`] as a file has them.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Given {
    controller: GivenAmounts,
    webhook: GivenAmounts,
    operator: GivenAmounts,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct GivenAmounts {
    /// Request.
    #[schemars(extend("pattern" = AMOUNT))]
    cpu: Option<String>,
    /// Request and limit.
    #[schemars(extend("pattern" = AMOUNT))]
    memory: Option<String>,
}

/// A quantity of Kubernetes that is not negative, without an exponent.
const AMOUNT: &str = r"^[0-9]+(\.[0-9]+)?([mkMGTP]|[KMGTP]i)?$";

impl GivenAmounts {
    fn or(self, default: Amounts) -> Amounts {
        Amounts { cpu: self.cpu.unwrap_or(default.cpu), memory: self.memory.unwrap_or(default.memory) }
    }
}

impl From<Given> for Resources {
    fn from(given: Given) -> Self {
        let default = Self::default();
        Self {
            controller: given.controller.or(default.controller),
            webhook: given.webhook.or(default.webhook),
            operator: given.operator.or(default.operator),
        }
    }
}

impl Default for Resources {
    fn default() -> Self {
        let amounts = |cpu: &str, memory: &str| Amounts { cpu: cpu.to_owned(), memory: memory.to_owned() };
        Self {
            controller: amounts("100m", "256Mi"),
            webhook: amounts("50m", "192Mi"),
            operator: amounts("20m", "64Mi"),
        }
    }
}
