//! What the loop of admission objects tells that of the installation, which says it in the status.

/// What is wrong with admission objects, and whether containers may be taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmissionTroubles {
    /// Why those that are missing are not created; `None` if none is left out for that reason.
    pub withheld: Option<String>,
    /// Those that a newer operator has written, and that are left; `None` if there are none.
    pub left: Option<String>,
    /// A sentence for each that another client insists on.
    pub contested: Vec<String>,
    /// The policy by which not everybody who may write an `Evaluator` names a container, and its binding, are as they are
    /// shipped.
    pub guards_containers: bool,
}
