//! Asks the API server what an account may do.

use std::collections::BTreeSet;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use sluice_e2e::call::get;
use sluice_e2e::objects;
use sluice_testbed::{Bed, Identity};

/// What an account wants to do.
#[derive(Clone, Copy)]
pub struct Wish<'a> {
    verb: &'a str,
    group: &'a str,
    /// With a subresource after a slash.
    resource: &'a str,
    namespace: &'a str,
    name: &'a str,
}

impl Wish<'_> {
    pub async fn is_granted(&self, client: &Client) -> bool {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        let review: SelfSubjectAccessReview = objects::from_json(json!({"spec": {"resourceAttributes": {
            "verb": self.verb, "group": self.group, "resource": resource, "subresource": subresource,
            "namespace": self.namespace, "name": self.name,
        }}}));
        let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
        api.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed
    }
}

/// `verb group/resource namespace name`, with `-` for what is empty.
pub fn wish(line: &str) -> Wish<'_> {
    let mut words = line.split_whitespace().map(|word| if word == "-" { "" } else { word });
    let verb = words.next().unwrap();
    let (group, resource) = words.next().unwrap().split_once(':').unwrap();
    Wish {
        verb,
        group,
        resource,
        namespace: words.next().unwrap_or_default(),
        name: words.next().unwrap_or_default(),
    }
}

pub async fn check(identity: &Identity, lines: &[&str], granted: bool) {
    let client = identity.client().unwrap();
    for line in lines {
        assert_eq!(wish(line).is_granted(&client).await, granted, "{}: {line}", identity.user());
    }
}

/// Every resource and subresource that the API server serves, as (group, resource).
async fn served(bed: &Bed) -> Vec<(String, String)> {
    let client = bed.admin().unwrap();
    let groups = get(&client, "/apis").await.unwrap().body;
    let mut paths = vec![(String::new(), "/api/v1".to_owned())];
    for group in groups["groups"].as_array().unwrap() {
        let name = group["name"].as_str().unwrap().to_owned();
        for version in group["versions"].as_array().unwrap() {
            paths.push((name.clone(), format!("/apis/{}", version["groupVersion"].as_str().unwrap())));
        }
    }
    let mut all = BTreeSet::new();
    for (group, path) in paths {
        let list = get(&client, &path).await.unwrap().body;
        for resource in list["resources"].as_array().unwrap() {
            all.insert((group.clone(), resource["name"].as_str().unwrap().to_owned()));
        }
    }
    assert!(all.len() > 100, "{all:?}");
    // A right on a kind that this version does not serve is a right as well.
    for kind in ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"] {
        all.insert(("admissionregistration.k8s.io".to_owned(), kind.to_owned()));
    }
    all.insert(("resource.k8s.io".to_owned(), "deviceclasses".to_owned()));
    all.into_iter().collect()
}

/// All that is granted in `namespace` (empty: everywhere) without a name.
pub async fn granted(bed: &Bed, identity: &Identity, namespace: &str) -> BTreeSet<String> {
    let client = identity.client().unwrap();
    let verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
    let wishes = served(bed)
        .await
        .into_iter()
        .flat_map(|(group, resource)| verbs.map(|verb| (verb, group.clone(), resource.clone())));
    let asked = stream::iter(wishes).map(|(verb, group, resource)| {
        let client = client.clone();
        async move {
            let wish = Wish { verb, group: &group, resource: &resource, namespace, name: "" };
            wish.is_granted(&client).await.then(|| format!("{verb} {group}:{resource}"))
        }
    });
    let all: BTreeSet<String> = asked.buffer_unordered(16).filter_map(async |line| line).collect().await;
    // What every account may: to ask who one is and what one may.
    all.into_iter().filter(|line| !line.contains(":selfsubject")).collect()
}

pub fn set(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().map(|&line| line.to_owned()).collect()
}
