//! Pods of different complexity, as the engine sees them.

use sluice_engine::Quantity;
use sluice_engine::pod::{ActuatedResources, Container, ContainerStatus, PodInput, ResourceList, Resources};

type List = [(&'static str, &'static str)];

fn list(entries: &List) -> anyhow::Result<ResourceList<'static>> {
    entries.iter().map(|&(name, text)| Ok((name, Quantity::parse(text)?))).collect()
}

fn container(name: &'static str, requests: &List, limits: &List) -> anyhow::Result<Container<'static>> {
    let resources = Resources { requests: list(requests)?, limits: list(limits)? };
    Ok(Container { name, resources, restartable: false })
}

/// The node confirms what the container asked for.
fn status(of: &Container<'static>) -> ContainerStatus<'static> {
    let Resources { requests, limits } = of.resources.clone();
    ContainerStatus {
        name: of.name,
        allocated: Some(requests.clone()),
        actuated: Some(ActuatedResources { requests: Some(requests), limits: Some(limits) }),
    }
}

fn running(
    containers: Vec<Container<'static>>,
    init_containers: Vec<Container<'static>>,
) -> PodInput<'static> {
    let statuses = containers.iter().chain(&init_containers).map(status).collect();
    PodInput {
        containers,
        init_containers,
        statuses,
        phase: Some("Running"),
        qos_class: Some("Burstable"),
        ..PodInput::default()
    }
}

/// One container with requests and limits.
pub(super) fn typical() -> anyhow::Result<PodInput<'static>> {
    let main =
        container("main", &[("cpu", "250m"), ("memory", "512Mi")], &[("cpu", "1"), ("memory", "1Gi")])?;
    Ok(running(vec![main], Vec::new()))
}

/// Two containers, an init container and two sidecars.
pub(super) fn sidecars() -> anyhow::Result<PodInput<'static>> {
    let small: &List = &[("cpu", "50m"), ("memory", "64Mi")];
    let restartable =
        |name| container(name, small, &[("memory", "128Mi")]).map(|it| Container { restartable: true, ..it });
    let init =
        container("migrate", &[("cpu", "2"), ("memory", "256Mi")], &[("cpu", "2"), ("memory", "256Mi")])?;
    let main = container(
        "main",
        &[("cpu", "500m"), ("memory", "1Gi"), ("ephemeral-storage", "2Gi")],
        &[("memory", "2Gi")],
    )?;
    let agent = container("agent", small, small)?;
    Ok(running(vec![main, agent], vec![restartable("proxy")?, init, restartable("logs")?]))
}

/// A virt-launcher: devices, huge pages, overhead, and the containers beside it.
pub(super) fn launcher() -> anyhow::Result<PodInput<'static>> {
    let devices: &List = &[
        ("devices.kubevirt.io/kvm", "1"),
        ("devices.kubevirt.io/tun", "1"),
        ("devices.kubevirt.io/vhost-net", "1"),
        ("hugepages-2Mi", "4Gi"),
        ("memory", "612Mi"),
        ("cpu", "400m"),
        ("ephemeral-storage", "50M"),
    ];
    let compute = container("compute", devices, devices)?;
    let disk: &List = &[("cpu", "10m"), ("memory", "1M"), ("ephemeral-storage", "50M")];
    let volume = container("volumecontainerdisk", disk, &[("cpu", "10m"), ("memory", "40M")])?;
    let console = container(
        "guest-console-log",
        &[("cpu", "5m"), ("memory", "35M")],
        &[("cpu", "15m"), ("memory", "60M")],
    )?;
    let init = container("container-disk-binary", disk, &[("cpu", "100m"), ("memory", "40M")])?;
    let mut pod = running(vec![compute, volume], vec![init, Container { restartable: true, ..console }]);
    pod.overhead = list(&[("cpu", "250m"), ("memory", "160Mi")])?;
    Ok(pod)
}
