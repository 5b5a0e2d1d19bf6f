//! Reads objects into a bundle, one page at a time: what is kept of a page is written before the next is read.

use std::collections::BTreeMap;

use futures::{StreamExt as _, stream};
use kube::api::ListParams;
use serde_json::{Value, json};
use sluice_manifests::uninstall::{Kind, ObjectName, definitions, inventory};

use super::archive::Archive;
use super::index::{File, Index, Right, Why};
use super::reader::{Missed, Reader};
use super::redact::Redactor;
use super::reduce::{reduce, secret_segments};
use super::sources::{Place, Source};
use crate::requests::CONCURRENT;

/// Objects in one page of a list.
const PAGE: u32 = 500;
/// A file of a list is ended when it has so many bytes.
const PART: usize = 1 << 20;

/// A bundle while it is made.
pub struct Bundle<'c> {
    pub reader: &'c Reader<'c>,
    pub archive: Archive,
    pub index: Index,
    pub redactor: Redactor,
}

impl Bundle<'_> {
    /// Adds a file; false, and a note in the index: there is no room for it.
    pub fn add(
        &mut self,
        path: &str,
        what: &str,
        objects: Option<usize>,
        text: &str,
    ) -> anyhow::Result<bool> {
        let text = self.redactor.clean(text);
        match self.archive.add(path, text.as_bytes())? {
            Ok(()) => {
                let (path, what) = (path.to_owned(), what.to_owned());
                self.index.files.push(File { path, what, objects, bytes: text.len() });
                Ok(true)
            }
            Err(full) => {
                self.index.miss(path, Why::Failed(full.to_string()));
                Ok(false)
            }
        }
    }

    /// Notes what was not read.
    pub fn miss(&mut self, what: String, missed: Missed, right: Right) {
        match missed {
            Missed::NotThere => {
                self.index.not_there.insert(what);
            }
            Missed::Forbidden => self.index.miss(what, Why::Forbidden(right)),
            Missed::NoAnswer(told) => self.index.miss(what, Why::NoAnswer(told)),
            Missed::Refused(_, told) => self.index.miss(what, Why::Failed(told)),
            Missed::Expired(_) => {
                let told = "the list took longer than the API server keeps its version".to_owned();
                self.index.miss(what, Why::Failed(told));
            }
        }
    }

    /// The objects of the installation, by their names. Secrets are not asked for.
    pub async fn installation(&mut self) -> anyhow::Result<()> {
        self.reader.begin("reading the objects of the installation");
        let namespace = self.index.installation.clone();
        let parts = inventory(&namespace).into_iter().map(|part| part.object);
        let names = parts.chain(definitions()).filter(|object| object.kind.kind != "Secret");
        let reader = self.reader;
        let asked = names.map(|name| async move {
            let object = reader.get(&name.kind, name.namespace.as_deref(), &name.name).await;
            (name, object)
        });
        let answers: Vec<(ObjectName, Result<Value, Missed>)> =
            stream::iter(asked).buffered(CONCURRENT).collect().await;
        // Before anything is written: others may have written the path down.
        for (_, answer) in &answers {
            self.redactor.learn(answer.iter().flat_map(secret_segments));
        }
        let mut files: BTreeMap<Kind, (String, usize)> = BTreeMap::new();
        for (name, answer) in answers {
            match answer {
                Ok(object) => {
                    let (text, count) = files.entry(name.kind.clone()).or_default();
                    text.push_str(&document(&name.kind, &object)?);
                    *count += 1;
                }
                Err(missed) => {
                    let right = Right::of("get", &name.kind, name.namespace.as_deref());
                    self.miss(name.to_string(), missed, right);
                }
            }
        }
        for (kind, (text, count)) in files {
            let path = format!("installation/{}.yaml", kind.resource());
            self.add(&path, &format!("{} of the installation", kind.kind), Some(count), &text)?;
        }
        Ok(())
    }

    /// A list, page by page; hands each object that is taken to `see`.
    pub async fn list(&mut self, source: &Source, mut see: impl FnMut(&Value)) -> anyhow::Result<()> {
        let namespace = match source.place {
            Place::Cluster => None,
            Place::Installation => Some(self.index.installation.clone()),
            Place::Tenants => self.index.namespace.clone(),
        };
        let namespace = namespace.as_deref();
        if let (Some(name), "Namespace") = (namespace, source.kind.kind.as_str()) {
            return self.one_namespace(source, name).await;
        }
        let mut part = Part::default();
        let mut params = ListParams { limit: Some(PAGE), ..ListParams::default() };
        params.label_selector = Some(source.labels.clone()).filter(|labels| !labels.is_empty());
        params.field_selector = Some(source.fields.clone()).filter(|fields| !fields.is_empty());
        let (mut read, mut was_renewed, mut is_whole) = (0, false, true);
        loop {
            self.reader.begin(format!("reading {}: {read} so far", source.what));
            match self.reader.page(&source.kind, namespace, &params).await {
                Ok((items, next)) => {
                    read += items.len();
                    for object in items.iter().filter(|object| (source.takes)(object)) {
                        see(object);
                        part.text.push_str(&document(&source.kind, object)?);
                        part.objects += 1;
                    }
                    params.continue_token = next;
                }
                // What follows is of a later time, which is better than nothing.
                Err(Missed::Expired(Some(token))) if !was_renewed => {
                    was_renewed = true;
                    self.index
                        .leave_out(source.what, "not of one moment: the list took long, and objects changed");
                    params.continue_token = Some(token);
                }
                Err(Missed::NotThere) => {
                    self.index.not_there.insert(format!("kind {}", source.kind.qualified()));
                    return Ok(());
                }
                Err(missed) => {
                    is_whole = false;
                    let after = if read > 0 { format!(" after the first {read}") } else { String::new() };
                    let right = Right::of("list", &source.kind, namespace);
                    self.miss(format!("{}{after}", source.what), missed, right);
                    break;
                }
            }
            if part.text.len() >= PART && !self.end_part(source, &mut part)? {
                return Ok(());
            }
            if params.continue_token.is_none() {
                break;
            }
        }
        if part.objects > 0 {
            self.end_part(source, &mut part)?;
        } else if is_whole && part.number == 0 {
            self.index.empty.insert(source.what.to_owned());
        }
        Ok(())
    }

    /// Writes what there is of a list; false: there is no room for more of it.
    fn end_part(&mut self, source: &Source, part: &mut Part) -> anyhow::Result<bool> {
        part.number += 1;
        let path = match part.number {
            1 => format!("{}.yaml", source.path),
            number => format!("{}-{number}.yaml", source.path),
        };
        let (text, objects) = (std::mem::take(&mut part.text), std::mem::take(&mut part.objects));
        self.add(&path, source.what, Some(objects), &text)
    }

    async fn one_namespace(&mut self, source: &Source, name: &str) -> anyhow::Result<()> {
        match self.reader.get(&source.kind, None, name).await {
            Ok(object) => {
                let text = document(&source.kind, &object)?;
                self.add(&format!("{}.yaml", source.path), source.what, Some(1), &text)?;
            }
            Err(missed) => {
                self.miss(format!("Namespace {name}"), missed, Right::of("get", &source.kind, None));
            }
        }
        Ok(())
    }
}

/// The file of a list that is being made.
#[derive(Default)]
struct Part {
    text: String,
    objects: usize,
    number: usize,
}

/// What is kept of an object, as YAML. Objects of a list do not say of which kind they are.
fn document(kind: &Kind, object: &Value) -> anyhow::Result<String> {
    let mut kept = reduce(&kind.kind, object);
    if let Some(fields) = kept.as_object_mut() {
        fields.insert("apiVersion".to_owned(), json!(kind.api_version()));
        fields.insert("kind".to_owned(), json!(kind.kind));
    }
    yaml(&kept)
}

/// A value as one document.
pub fn yaml(value: &Value) -> anyhow::Result<String> {
    let text = serde_saphyr::to_string(value)?;
    Ok(format!("---\n{}\n", text.trim_end()))
}
