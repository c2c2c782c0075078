//! Signatures of datatypes, with a mock of MPI's queries.

use std::cell::Cell;

use foldwire_preload::signature::{BaseType, Datatypes, Signature, TypeConstructor};

/// Datatypes, by their index in a list.
struct List {
    /// Bytes and constructor of each datatype.
    types: Vec<(usize, TypeConstructor<usize>)>,
    /// Components that `constructor` returned and the caller has not released.
    n_open: Cell<isize>,
}

const FLOAT: usize = 0;
const DOUBLE: usize = 1;

impl Datatypes for List {
    type Datatype = usize;
    type Error = ();

    fn base(&self, datatype: usize) -> Option<BaseType> {
        [(FLOAT, BaseType::F32), (DOUBLE, BaseType::F64)]
            .into_iter()
            .find(|&(known, _)| known == datatype)
            .map(|(_, base)| base)
    }

    fn n_bytes(&self, datatype: usize) -> Result<usize, ()> {
        Ok(self.types[datatype].0)
    }

    fn constructor(&self, datatype: usize) -> Result<TypeConstructor<usize>, ()> {
        let constructor = self.types[datatype].1.clone();
        let n_given = match &constructor {
            TypeConstructor::Named => 0,
            TypeConstructor::Dup(_) | TypeConstructor::Contiguous(_) => 1,
            TypeConstructor::Of(parts) => parts.len() as isize,
        };
        self.n_open.set(self.n_open.get() + n_given);
        Ok(constructor)
    }

    fn release(&self, _: usize) {
        self.n_open.set(self.n_open.get() - 1);
    }
}

/// Signature of a datatype of `n_bytes`. Its constructor may refer to the datatypes 0 to 5.
fn of(n_bytes: usize, constructor: TypeConstructor<usize>) -> Signature {
    let types = vec![
        (4, TypeConstructor::Named),
        (8, TypeConstructor::Named),
        (40, TypeConstructor::Contiguous(FLOAT)),
        (12, TypeConstructor::Of(vec![FLOAT])),
        (0, TypeConstructor::Contiguous(DOUBLE)),
        (1, TypeConstructor::Named),
        (n_bytes, constructor),
    ];
    let list = List { types, n_open: Cell::new(0) };
    let signature = Signature::of(&list, 6).unwrap();
    assert_eq!(list.n_open.get(), 0, "what MPI gave is given back");
    assert_eq!(Signature::from_number(signature.to_number().unwrap()), signature);
    signature
}

#[test]
fn signatures_look_through_layouts() {
    let floats = |n_bytes, is_dense| Signature {
        base: Some(BaseType::F32),
        n_bytes,
        is_dense,
        // MPI predefines none of the datatypes under test.
        is_own: false,
    };
    assert_eq!(of(4, TypeConstructor::Dup(FLOAT)), floats(4, true));
    assert_eq!(of(80, TypeConstructor::Contiguous(2)), floats(80, true));
    assert_eq!(of(24, TypeConstructor::Contiguous(3)), floats(24, false));
    assert_eq!(of(52, TypeConstructor::Of(vec![2, 3])), floats(52, false));
}

#[test]
fn parts_without_values_are_no_part_of_a_signature() {
    assert_eq!(of(4, TypeConstructor::Of(vec![FLOAT, 4])).base, Some(BaseType::F32));
    assert_eq!(of(12, TypeConstructor::Of(vec![FLOAT, DOUBLE])).base, None);
    assert_eq!(of(0, TypeConstructor::Contiguous(4)).base, None);
    assert_eq!(of(3, TypeConstructor::Contiguous(5)).base, Some(BaseType::Other));
}
