//! No CEL expression that Sluice ships loops over a list or map whose length a tenant decides.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at what is not as it must be"
)]

use serde_json::Value;
use sluice_manifests::{Gating, InstallOptions, rancher_objects, render};

/// A list or map with at most so many items is short: a loop over it takes milliseconds.
const SHORT: usize = 1000;
const MACROS: [&str; 7] = ["all", "exists", "exists_one", "filter", "map", "existsOne", "transformList"];

#[derive(Debug)]
struct Node {
    /// As it is written, without spaces.
    text: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Constant,
    Not(Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Choice([Box<Node>; 3]),
    Compare(String, Box<[Node; 2]>),
    Call(Box<Node>, String, Vec<Node>),
    Other(Vec<Node>),
}

/// Parses CEL as far as the order of evaluation goes.
struct Parser {
    tokens: Vec<String>,
    at: usize,
}

impl Parser {
    fn new(text: &str) -> Self {
        let (mut tokens, mut rest) = (Vec::new(), text.trim_start());
        while let Some(first) = rest.chars().next() {
            let word = |c: char| c.is_alphanumeric() || c == '_';
            let length = match first {
                '\'' | '"' => rest[1..].find(first).expect("the end of a text") + 2,
                _ if word(first) => rest.find(|c: char| !word(c)).unwrap_or(rest.len()),
                _ if ["||", "&&", "==", "!=", "<=", ">=", ".?"].iter().any(|it| rest.starts_with(it)) => 2,
                _ => 1,
            };
            tokens.push(rest[..length].to_owned());
            rest = rest[length..].trim_start();
        }
        Self { tokens, at: 0 }
    }

    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    fn take(&mut self, token: &str) -> bool {
        let is = self.peek() == token;
        self.at += usize::from(is);
        is
    }

    fn want(&mut self, token: &str) {
        assert!(self.take(token), "{token} expected before {:?}", &self.tokens[self.at..]);
    }

    fn node(&self, from: usize, kind: Kind) -> Node {
        Node { text: self.tokens[from..self.at].concat(), kind }
    }

    fn parse(&mut self) -> Node {
        let from = self.at;
        let condition = self.chain("||", Kind::Or, |it| it.chain("&&", Kind::And, Self::comparison));
        if !self.take("?") {
            return condition;
        }
        let yes = self.parse();
        self.want(":");
        let no = self.parse();
        self.node(from, Kind::Choice([condition, yes, no].map(Box::new)))
    }

    fn chain(&mut self, by: &str, kind: fn(Vec<Node>) -> Kind, part: impl Fn(&mut Self) -> Node) -> Node {
        let from = self.at;
        let mut parts = vec![part(self)];
        while self.take(by) {
            parts.push(part(self));
        }
        if parts.len() == 1 { parts.remove(0) } else { self.node(from, kind(parts)) }
    }

    fn comparison(&mut self) -> Node {
        let from = self.at;
        let mut left = self.unary();
        while ["==", "!=", "<=", ">=", "<", ">", "in", "+", "-", "*", "/"].contains(&self.peek()) {
            let operator = self.peek().to_owned();
            self.at += 1;
            let right = self.unary();
            left = self.node(from, Kind::Compare(operator, Box::new([left, right])));
        }
        left
    }

    fn unary(&mut self) -> Node {
        let from = self.at;
        if self.take("!") {
            let negated = Box::new(self.unary());
            return self.node(from, Kind::Not(negated));
        }
        let mut node = self.primary();
        loop {
            let kind = if self.take(".") || self.take(".?") {
                let name = self.peek().to_owned();
                self.at += 1;
                if self.take("(") {
                    let arguments = self.list(")");
                    Kind::Call(Box::new(node), name, arguments)
                } else {
                    Kind::Other(vec![node])
                }
            } else if self.take("[") {
                self.take("?");
                let index = self.parse();
                self.want("]");
                Kind::Other(vec![node, index])
            } else if self.take("{") {
                Kind::Other(self.list("}"))
            } else {
                return node;
            };
            node = self.node(from, kind);
        }
    }

    fn primary(&mut self) -> Node {
        let from = self.at;
        let first = self.peek().to_owned();
        self.at += 1;
        let kind = match &*first {
            "(" => {
                let inner = self.parse();
                self.want(")");
                return inner;
            }
            "[" | "{" => {
                let items = self.list(if first == "[" { "]" } else { "}" });
                let constant = items.iter().all(|item| matches!(item.kind, Kind::Constant));
                if constant { Kind::Constant } else { Kind::Other(items) }
            }
            _ if first.starts_with(['\'', '"']) || first.starts_with(|c: char| c.is_ascii_digit()) => {
                Kind::Constant
            }
            _ if self.take("(") => Kind::Other(self.list(")")),
            _ => Kind::Other(Vec::new()),
        };
        self.node(from, kind)
    }

    /// Items, of which each may have a key before it.
    fn list(&mut self, end: &str) -> Vec<Node> {
        let mut items = Vec::new();
        while !self.take(end) {
            items.push(self.parse());
            if !self.take(":") {
                assert!(self.take(",") || self.peek() == end, "{:?}", &self.tokens[self.at..]);
            }
        }
        items
    }
}

/// What is short if the node is `truth`.
fn short_if(node: &Node, truth: bool) -> Vec<String> {
    match &node.kind {
        Kind::Not(inner) => short_if(inner, !truth),
        Kind::And(parts) if truth => parts.iter().flat_map(|part| short_if(part, true)).collect(),
        Kind::Or(parts) if !truth => parts.iter().flat_map(|part| short_if(part, false)).collect(),
        Kind::Compare(operator, sides) if operator == if truth { "<=" } else { ">" } => {
            let [Node { kind: Kind::Call(measured, name, _), .. }, bound] = &**sides else {
                return Vec::new();
            };
            let is_short = name == "size" && bound.text.parse().is_ok_and(|bound: usize| bound <= SHORT);
            Vec::from_iter(is_short.then(|| measured.text.clone()))
        }
        _ => Vec::new(),
    }
}

/// Adds what the node loops over to `loops`, with whether it is short. `&&`, `||` and `?:` stop where the left side decides.
fn walk(node: &Node, short: &[String], loops: &mut Vec<(String, bool)>) {
    let mut in_order = |parts: &[Node], truth| {
        let mut short = short.to_vec();
        for part in parts {
            walk(part, &short, loops);
            short.extend(short_if(part, truth));
        }
    };
    match &node.kind {
        Kind::Constant => {}
        Kind::Not(inner) => walk(inner, short, loops),
        Kind::And(parts) => in_order(parts, true),
        Kind::Or(parts) => in_order(parts, false),
        Kind::Choice([condition, yes, no]) => {
            walk(condition, short, loops);
            walk(yes, &[short, &short_if(condition, true)].concat(), loops);
            walk(no, &[short, &short_if(condition, false)].concat(), loops);
        }
        Kind::Compare(_, sides) => sides.iter().for_each(|side| walk(side, short, loops)),
        Kind::Call(on, name, arguments) => {
            if MACROS.contains(&&**name) {
                loops.push((on.text.clone(), is_short(on, short)));
            }
            walk(on, short, loops);
            arguments.iter().for_each(|argument| walk(argument, short, loops));
        }
        Kind::Other(parts) => parts.iter().for_each(|part| walk(part, short, loops)),
    }
}

fn is_short(node: &Node, short: &[String]) -> bool {
    match &node.kind {
        Kind::Constant => true,
        Kind::Call(on, name, _) if ["filter", "map"].contains(&&**name) => is_short(on, short),
        _ => short.contains(&node.text),
    }
}

fn loops(expression: &str, short: &[String]) -> Vec<(String, bool)> {
    let mut parser = Parser::new(expression);
    let node = parser.parse();
    assert_eq!(parser.peek(), "", "{expression}");
    let mut loops = Vec::new();
    walk(&node, short, &mut loops);
    loops
}

/// What a schema bounds, `self` or a field of it.
fn bounded(schema: &Value) -> Vec<String> {
    let is_bounded = |schema: &Value| {
        let most = ["maxProperties", "maxItems"].map(|key| schema[key].as_u64());
        most.into_iter().flatten().any(|most| most <= SHORT as u64)
    };
    let fields = schema["properties"].as_object().into_iter().flatten();
    let fields = fields.filter(|(_, field)| is_bounded(field)).map(|(name, _)| format!("self.{name}"));
    fields.chain(is_bounded(schema).then(|| "self".to_owned())).collect()
}

/// All expressions of an object, with what is short to begin with.
fn expressions(object: &Value, found: &mut Vec<(String, Vec<String>)>) {
    match object {
        Value::Object(fields) => {
            for (key, value) in fields {
                let rules = value.as_array().filter(|_| key == "x-kubernetes-validations");
                for rule in rules.into_iter().flatten() {
                    found.push((rule["rule"].as_str().expect("a rule").to_owned(), bounded(object)));
                }
                let is_cel = key == "expression" || key.ends_with("Expression");
                found.extend(value.as_str().filter(|_| is_cel).map(|cel| (cel.to_owned(), Vec::new())));
                expressions(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

#[test]
fn no_expression_loops_over_what_others_may_make_long() {
    let username = Some("system:serviceaccount:kubevirt:kubevirt-controller".to_owned());
    let counting = InstallOptions { lets_in_targets_of: username, ..InstallOptions::default() };
    let webhook = InstallOptions { gating: Gating::Webhook, ..counting.clone() };
    let mut found = Vec::new();
    for options in [InstallOptions::default(), counting, webhook] {
        for object in [render(&options), rancher_objects(&options)].concat() {
            expressions(&object, &mut found);
        }
    }
    let mut seen = 0;
    for (expression, short) in &found {
        for (over, is_short) in loops(expression, short) {
            assert!(is_short, "a loop over {over}, whose size nothing before it bounds: {expression}");
            seen += 1;
        }
    }
    assert!(found.len() > 100 && seen > 100, "{} expressions with {seen} loops", found.len());
}

#[test]
fn a_loop_without_a_bound_before_it_is_found() {
    for unbounded in [
        "has(object.a) && object.a.exists(x, x.b)",
        "object.a.exists(x, x.b) && object.a.size() <= 64",
        "object.a.size() > 64 && object.a.exists(x, x.b)",
        "object.a.size() <= 64 || object.a.exists(x, x.b)",
        "object.a.size() <= 100000 && object.a.all(x, x.b)",
        "object.b.size() <= 64 && object.a.filter(x, x.b) == []",
        "object.a.size() <= 64 ? true : object.a.map(x, x.b) == []",
        "object.a.size() <= 64 && object.a.all(x, x.b.all(y, y))",
        "Object{a: object.a.map(x, {'k': x})}",
        "[object.a].exists(x, x.b)",
    ] {
        assert!(loops(unbounded, &[]).iter().any(|(_, is_short)| !is_short), "{unbounded}");
    }
    for bounded in [
        "object.a.size() <= 64 && object.b && object.a.filter(x, x.b).map(x, x.c) == []",
        "!(object.a.size() <= 64) || object.a.exists(x, x.b)",
        "object.a.size() > 64 || (object.b == 1 && object.?a[?'k'].orValue('') != '' && object.a.exists(x, x.b))",
        "object.a.size() > 64 ? false : object.a.all(x, x.b.size() > 64 || x.b.all(y, y))",
        "['a', 'b'].exists(k, object[k].hasValue())",
    ] {
        assert!(loops(bounded, &[]).iter().all(|(_, is_short)| *is_short), "{bounded}");
    }
}
