//! What the loop of admission objects tells that of the installation, which says it in the status.

/// What is wrong with admission objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmissionTroubles {
    /// Why those that are missing are not created; `None` if none is left out for that reason.
    pub withheld: Option<String>,
    /// Those that a newer operator has written, and that are left; `None` if there are none.
    pub left: Option<String>,
    /// A sentence for each that another client insists on.
    pub contested: Vec<String>,
}
