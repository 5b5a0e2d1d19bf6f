//! From the tokens of a module to what it declares, defines, imports and names.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::conditions::is_of_tests;
use super::cursor::{Cursor, listed, plain};
use super::module::{Module, Names};

/// A module that is declared in another one.
#[derive(Debug)]
pub(super) struct Declared {
    pub(super) name: String,
    /// `None`: it has a file of its own.
    pub(super) body: Option<TokenStream>,
}

/// Words after which the name of what is defined comes.
const DEFINING: [&str; 8] = ["const", "enum", "fn", "static", "struct", "trait", "type", "union"];
/// Words with which other items begin.
const BEGINNING: [&str; 8] = ["async", "extern", "impl", "macro_rules", "mod", "pub", "unsafe", "use"];

/// Reads a module. What is compiled for tests only is left out.
pub(super) fn read(tokens: TokenStream) -> (Module, Vec<Declared>) {
    let mut reader = Reader { module: Module::default(), declared: Vec::new() };
    reader.read(&listed(tokens), true);
    (reader.module, reader.declared)
}

struct Reader {
    module: Module,
    declared: Vec<Declared>,
}

impl Reader {
    /// `is_top`: these are the items of the module, not what is inside one of them.
    fn read(&mut self, tokens: &[TokenTree], is_top: bool) {
        let mut cursor = Cursor::new(tokens);
        let mut is_for_tests = false;
        while !cursor.is_at_end() {
            if cursor.take_punct('#') {
                let is_inner = cursor.take_punct('!');
                if let Some(attribute) = cursor.take_group(Delimiter::Bracket) {
                    is_for_tests |= !is_inner && is_of_tests(&attribute);
                    self.read_attribute(&attribute);
                }
            } else if is_for_tests {
                skip_item(&mut cursor);
                is_for_tests = false;
            } else if cursor.take_colons() {
                // The word belongs to something that is no path of names: `<T as Named>::NAME`.
                cursor.take_word();
            } else {
                self.read_next(&mut cursor, is_top);
            }
        }
    }

    fn read_next(&mut self, cursor: &mut Cursor<'_>, is_top: bool) {
        let word = match cursor.next() {
            Some(TokenTree::Ident(word)) => plain(word),
            Some(TokenTree::Group(group)) => return self.read(&listed(group.stream()), false),
            Some(TokenTree::Punct(_) | TokenTree::Literal(_)) | None => return,
        };
        match word.as_str() {
            // `impl Trait + use<'a>` captures.
            "use" if !cursor.is_at_punct('<') => self.read_use(cursor, &Names::new()),
            "pub" => skip_visibility(cursor),
            "mod" if is_top => {
                let Some(name) = cursor.take_word() else { return };
                let body = cursor.take_group(Delimiter::Brace).map(|body| body.into_iter().collect());
                self.declared.push(Declared { name, body });
            }
            "macro_rules" if is_top => {
                cursor.take_punct('!');
                self.module.defined.extend(cursor.take_word());
            }
            defining if is_top && DEFINING.contains(&defining) => {
                // Of `const fn name` the second word tells.
                let mut ahead = *cursor;
                let name = ahead.take_word().filter(|name| !DEFINING.contains(&name.as_str()));
                if name.is_some() {
                    *cursor = ahead;
                }
                self.module.defined.extend(name);
            }
            _ => self.read_path(cursor, word),
        }
    }

    fn read_path(&mut self, cursor: &mut Cursor<'_>, first: String) {
        let mut path = vec![first];
        while let Some((name, after)) = next_name(*cursor) {
            path.push(name);
            *cursor = after;
        }
        if path.len() > 1 {
            self.module.paths.push(path);
        }
    }

    /// One branch of a `use`; `before` is what it begins with.
    fn read_use(&mut self, cursor: &mut Cursor<'_>, before: &[String]) {
        let mut path = before.to_vec();
        loop {
            cursor.take_colons();
            if cursor.take_punct('*') {
                return self.module.globs.push(path);
            }
            if let Some(branches) = cursor.take_group(Delimiter::Brace) {
                let mut branches = Cursor::new(&branches);
                while !branches.is_at_end() {
                    self.read_use(&mut branches, &path);
                    branches.take_punct(',');
                }
                return;
            }
            match cursor.take_word().as_deref() {
                Some("as") => {
                    let name = cursor.take_word();
                    return self.import(path, name);
                }
                Some(name) => path.push(name.to_owned()),
                None => {
                    // What is no part of a branch would be seen for ever.
                    if !cursor.is_at_punct(',') {
                        cursor.next();
                    }
                    return self.import(path, None);
                }
            }
        }
    }

    /// `name`: another name than the last of the path.
    fn import(&mut self, mut path: Names, name: Option<String>) {
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        if let Some(name) = name.or_else(|| path.last().cloned()) {
            self.module.imported.entry(name).or_insert_with(|| path.clone());
            self.module.paths.push(path);
        }
    }

    /// Attributes have paths as such and as texts: `#[serde(with = "crate::meta::of_pod")]`.
    fn read_attribute(&mut self, attribute: &[TokenTree]) {
        for token in attribute {
            match token {
                TokenTree::Literal(text) => {
                    let text = text.to_string();
                    let path = text.trim_matches('"');
                    if ["crate::", "self::", "super::"].iter().any(|start| path.starts_with(start)) {
                        self.module.paths.push(path.split("::").map(str::to_owned).collect());
                    }
                }
                TokenTree::Group(group) => self.read_attribute(&listed(group.stream())),
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
        self.read(attribute, false);
    }
}

/// The name after two colons, and what comes after it.
fn next_name(mut cursor: Cursor<'_>) -> Option<(String, Cursor<'_>)> {
    if !cursor.take_colons() {
        return None;
    }
    Some((cursor.take_word()?, cursor))
}

/// `pub(in crate::a)` says who may see something, and uses nothing.
fn skip_visibility(cursor: &mut Cursor<'_>) {
    let Some(TokenTree::Group(group)) = cursor.peek() else { return };
    let first = Cursor::new(&listed(group.stream())).take_word();
    // The other brackets after `pub` are those of a type: `struct Named(pub (Name, Uid))`.
    if first.is_some_and(|word| ["crate", "in", "self", "super"].contains(&word.as_str())) {
        cursor.next();
    }
}

/// Skips the item, the statement, the field or the variant that begins here.
fn skip_item(cursor: &mut Cursor<'_>) {
    let begins = |word: &str| DEFINING.contains(&word) || BEGINNING.contains(&word);
    let is_item = matches!(cursor.peek(), Some(TokenTree::Ident(word)) if begins(&plain(word)));
    while let Some(token) = cursor.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ';' => return,
            // The commas of an item are between parameters.
            TokenTree::Punct(punct) if punct.as_char() == ',' && !is_item => return,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
            _ => {}
        }
    }
}
