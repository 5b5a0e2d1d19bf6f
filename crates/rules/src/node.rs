//! A compiled expression.

use sluice_engine::Quantity;

use crate::pattern::Pattern;

/// A part of an expression.
#[derive(Debug)]
pub(crate) struct Node {
    /// Number of its character in the source.
    pub at: u32,
    pub kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Null,
    Bool(bool),
    Int(i64),
    Amount(Quantity),
    Text(Box<str>),
    Pod,
    Native,
    /// The element of a macro, by how many macros are around it.
    Element(usize),
    Select(Box<Node>, Box<str>),
    Has(Box<Node>, Box<str>),
    Index(Box<[Node; 2]>),
    Not(Box<Node>),
    Negate(Box<Node>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    If(Box<[Node; 3]>),
    In(Box<[Node; 2]>),
    Equal(Box<[Node; 2]>),
    NotEqual(Box<[Node; 2]>),
    Compare(Ordered, Box<[Node; 2]>),
    Arithmetic(Arithmetic, Box<[Node; 2]>),
    List(Box<[Node]>),
    Call(Function, Box<[Node]>),
    Matches(Box<Node>, Box<Pattern>),
    Macro(Box<Macro>),
}

/// A comparison by order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ordered {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Ordered {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}

/// An operator on numbers; `+` also joins texts and lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Arithmetic {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
        }
    }
}

/// A function; its receiver is its first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Size,
    StartsWith,
    EndsWith,
    Contains,
    Quantity,
    Sum,
    Min,
    Max,
    Ceil,
    Int,
}

impl Function {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::StartsWith => "startsWith",
            Self::EndsWith => "endsWith",
            Self::Contains => "contains",
            Self::Quantity => "quantity",
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
            Self::Ceil => "ceil",
            Self::Int => "int",
        }
    }
}

/// A macro over the elements of a list or the keys of a map.
#[derive(Debug)]
pub(crate) struct Macro {
    pub over: Node,
    pub does: Does,
}

/// What a macro does with each element.
#[derive(Debug)]
pub(crate) enum Does {
    Exists(Node),
    All(Node),
    ExistsOne(Node),
    /// `filter` and `map`: the elements that are taken (absent: all), and what becomes of each.
    Collect {
        takes: Option<Node>,
        makes: Node,
    },
}
