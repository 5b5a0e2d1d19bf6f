//! Expressions and pods that are written from a row of choices, so that a failure shrinks.
//!
//! They are typed loosely: some have no value on either side. Left out is what [`crate::DIFFERENCES`] lists: numbers with a
//! fraction, division of amounts, and texts that are compared with numbers by `==`.

use serde_json::{Value, json};

pub struct Writer {
    choices: Vec<u8>,
    next: usize,
    elements: Vec<(String, Kind)>,
}

/// What an element of a macro is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Container,
    Text,
    Number,
}

impl Writer {
    pub fn new(choices: &[u8]) -> Self {
        Self { choices: choices.to_vec(), next: 0, elements: Vec::new() }
    }

    pub fn choose(&mut self, of: usize) -> usize {
        let choice = self.choices.get(self.next).copied().unwrap_or(0);
        self.next += 1;
        usize::from(choice) % of
    }

    fn one_of(&mut self, of: &[&str]) -> String {
        of[self.choose(of.len())].to_owned()
    }

    /// A pod with none to three containers.
    pub fn pod(&mut self) -> Value {
        let containers = self.choose(4);
        let containers: Vec<Value> = (0..containers).map(|number| self.container(number)).collect();
        let mut pod = json!({
            "metadata": {
                "name": self.one_of(&["db-0", "web", "äö"]),
                "labels": { "app": self.one_of(&["db", "web", ""]) },
            },
            "spec": { "containers": containers, "priority": self.choose(200), "hostNetwork": self.choose(2) == 0 },
        });
        if self.choose(2) == 0 {
            pod["spec"]["runtimeClassName"] = json!(self.one_of(&["kata", "runc"]));
        }
        pod
    }

    fn container(&mut self, number: usize) -> Value {
        let mut container = json!({
            "name": format!("c{number}"),
            "image": self.one_of(&["registry.example/oracle:19", "registry.example/web:1", "oracle"]),
            "ports": (0..self.choose(3)).map(|port| 8000 + port).collect::<Vec<_>>(),
        });
        if self.choose(3) > 0 {
            container["resources"] = json!({ "requests": { "cpu": self.one_of(&["1", "2", "16"]) } });
        }
        container
    }

    fn element(&mut self, kind: Kind) -> Option<String> {
        let names: Vec<String> =
            self.elements.iter().filter(|(_, it)| *it == kind).map(|(name, _)| name.clone()).collect();
        (!names.is_empty()).then(|| names[self.choose(names.len())].clone())
    }

    /// An expression that is true or false, if it is anything.
    pub fn truth(&mut self, depth: usize) -> String {
        if depth == 0 {
            let leaves = [
                "true",
                "false",
                "pod.spec.hostNetwork",
                "has(pod.spec.runtimeClassName)",
                "has(pod.spec.none)",
                "'cpu' in native",
                "'none' in native",
                "'app' in pod.metadata.labels",
                "pod.spec.none",
                "has(pod.none.none)",
            ];
            return self.one_of(&leaves);
        }
        let deeper = depth - 1;
        match self.choose(14) {
            0 => format!("({} && {})", self.truth(deeper), self.truth(deeper)),
            1 => format!("({} || {})", self.truth(deeper), self.truth(deeper)),
            2 => format!("!({})", self.truth(deeper)),
            3 => format!("({} ? {} : {})", self.truth(deeper), self.truth(deeper), self.truth(deeper)),
            4 => {
                let operator = self.one_of(&["==", "!=", "<", "<=", ">", ">="]);
                format!("{} {operator} {}", self.number(deeper), self.number(deeper))
            }
            5 => {
                let operator = self.one_of(&["==", "!=", "<", "<=", ">", ">="]);
                format!("{} {operator} {}", self.text(deeper), self.text(deeper))
            }
            6 => {
                let function = self.one_of(&["startsWith", "endsWith", "contains"]);
                format!("{}.{function}({})", self.text(deeper), self.text(deeper))
            }
            7 => {
                let pattern = self.one_of(&["'^reg.*:[0-9]+$'", "r'^\\w+-\\d$'", "'(db|web)'", "'ä'"]);
                format!("{}.matches({pattern})", self.text(deeper))
            }
            8 => format!("{} in {}", self.text(deeper), self.texts(deeper)),
            9 => format!("{} in {}", self.number(deeper), self.numbers(deeper)),
            10 => format!("{} == {}", self.texts(deeper), self.texts(deeper)),
            11 | 12 => {
                let name = self.one_of(&["exists", "all", "exists_one"]);
                let (list, kind) = self.list(deeper);
                self.with(kind, |it, element| format!("{list}.{name}({element}, {})", it.truth(deeper)))
            }
            // Without a value for most, on either side.
            _ => {
                let operator = self.one_of(&["<", ">=", "in", "&&"]);
                format!("({} {operator} {})", self.text(deeper), self.number(deeper))
            }
        }
    }

    /// An expression that is a whole number, if it is anything.
    pub fn number(&mut self, depth: usize) -> String {
        if depth == 0 {
            if let Some(element) = self.element(Kind::Number)
                && self.choose(2) == 0
            {
                return element;
            }
            let leaves = [
                "0",
                "1",
                "7",
                "-3",
                "9223372036854775807",
                "0x1F",
                "pod.spec.priority",
                "pod.spec.none",
                "pod.spec.containers[0].ports[1]",
                "size(pod.spec.containers)",
                "size(pod.metadata.name)",
            ];
            return self.one_of(&leaves);
        }
        let deeper = depth - 1;
        match self.choose(10) {
            0 | 1 => {
                let operator = self.one_of(&["+", "-", "*", "/", "%"]);
                format!("({} {operator} {})", self.number(deeper), self.number(deeper))
            }
            2 => format!("-({})", self.number(deeper)),
            3 => format!("({} ? {} : {})", self.truth(deeper), self.number(deeper), self.number(deeper)),
            4 => {
                let function = self.one_of(&["sum", "min", "max", "size"]);
                format!("{}.{function}()", self.numbers(deeper))
            }
            5 => format!("size({})", self.text(deeper)),
            6 => format!("int({})", self.number(deeper)),
            7 => format!("int({})", self.text(deeper)),
            8 => {
                let function = self.one_of(&["", ".ceil()"]);
                let key = self.one_of(&["cpu", "memory", "pods", "none"]);
                let operator = self.one_of(&["+", "-", "*"]);
                format!(
                    "int(native['{key}']{function} {operator} {})",
                    self.one_of(&["1", "2", "native.cpu"])
                )
            }
            _ => match self.element(Kind::Container) {
                Some(element) => format!("int(quantity({element}.resources.requests.cpu))"),
                None => "int(quantity('12'))".to_owned(),
            },
        }
    }

    fn text(&mut self, depth: usize) -> String {
        if let Some(element) = self.element(Kind::Container)
            && self.choose(2) == 0
        {
            let field = self.one_of(&[
                "name",
                "image",
                "none",
                "resources.requests.cpu",
                "resources['requests']['cpu']",
            ]);
            return format!("{element}.{field}");
        }
        if let Some(element) = self.element(Kind::Text)
            && self.choose(2) == 0
        {
            return element;
        }
        let leaves = [
            "'db'",
            "\"web\"",
            "''",
            "'äöü'",
            "r'\\d'",
            "'a\\n\\'\\x41\\u00e4'",
            "'''a'b'''",
            "pod.metadata.name",
            "pod.metadata.labels.app",
            "pod.metadata['labels']['app']",
            "pod.spec.runtimeClassName",
            "pod.none",
            "pod.spec.containers[0].image",
        ];
        if depth == 0 {
            return self.one_of(&leaves);
        }
        let deeper = depth - 1;
        match self.choose(5) {
            0 => format!("({} + {})", self.text(deeper), self.text(deeper)),
            1 => format!("({} ? {} : {})", self.truth(deeper), self.text(deeper), self.text(deeper)),
            2 => format!("{}[{}]", self.texts(deeper), self.number(deeper)),
            _ => self.one_of(&leaves),
        }
    }

    fn list(&mut self, depth: usize) -> (String, Kind) {
        match self.choose(4) {
            0 | 1 => ("pod.spec.containers".to_owned(), Kind::Container),
            2 => (self.texts(depth), Kind::Text),
            _ => (self.numbers(depth), Kind::Number),
        }
    }

    fn texts(&mut self, depth: usize) -> String {
        let leaves = ["['db', 'web']", "[]", "['db']"];
        if depth == 0 {
            return self.one_of(&leaves);
        }
        let deeper = depth - 1;
        match self.choose(6) {
            0 => format!("[{}, {}]", self.text(deeper), self.text(deeper)),
            1 => format!("({} + {})", self.texts(deeper), self.texts(deeper)),
            2 | 3 => {
                let (list, kind) = self.list(deeper);
                self.with(kind, |it, element| format!("{list}.map({element}, {})", it.text(deeper)))
            }
            4 => {
                let list = self.texts(deeper);
                self.with(Kind::Text, |it, element| format!("{list}.filter({element}, {})", it.truth(deeper)))
            }
            _ => self.one_of(&leaves),
        }
    }

    fn numbers(&mut self, depth: usize) -> String {
        let leaves = ["[1, 2, 3]", "[]", "[0]", "pod.spec.containers[0].ports"];
        if depth == 0 {
            return self.one_of(&leaves);
        }
        let deeper = depth - 1;
        match self.choose(5) {
            0 => format!("[{}, {}]", self.number(deeper), self.number(deeper)),
            1 | 2 => {
                let (list, kind) = self.list(deeper);
                self.with(kind, |it, element| {
                    if it.choose(2) == 0 {
                        format!("{list}.map({element}, {}, {})", it.truth(deeper), it.number(deeper))
                    } else {
                        format!("{list}.map({element}, {})", it.number(deeper))
                    }
                })
            }
            _ => self.one_of(&leaves),
        }
    }

    /// Writes what is within a macro. A third one around it would be refused: its element is not written, only its list.
    fn with(&mut self, kind: Kind, write: impl FnOnce(&mut Self, &str) -> String) -> String {
        if self.elements.len() == 2 {
            return match kind {
                Kind::Text => "['db']".to_owned(),
                _ => "[1]".to_owned(),
            };
        }
        let name = self.one_of(&["x", "y", "c", "has_it"]);
        self.elements.push((name.clone(), kind));
        let written = write(self, &name);
        self.elements.pop();
        written
    }
}

/// Pieces of expressions in any order.
pub fn noise(choices: &[u8]) -> String {
    const PIECES: [&str; 48] = [
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "!",
        "-",
        "+",
        "*",
        "/",
        "%",
        "?",
        ":",
        ",",
        ".",
        "==",
        "!=",
        "<",
        ">=",
        "&&",
        "||",
        " in ",
        "in",
        "'",
        "\"",
        "'''",
        "r'",
        "b'",
        "\\",
        "\\n",
        "//",
        "\n",
        " ",
        "pod",
        "native",
        ".map(x, ",
        ".exists(x, ",
        "x",
        "1",
        "1u",
        "1.5",
        "true",
        "null",
        "has(",
        ".matches('",
        "ä",
        "@",
    ];
    choices.iter().map(|choice| PIECES[usize::from(*choice) % PIECES.len()]).collect()
}
