//! Signatures, of types that MPI would say were made so.

use std::cell::Cell;

use foldwire_preload::signature::{Base, Datatypes, Making, Signature};

/// Types by their place in a list.
struct List {
    types: Vec<(usize, Making<usize>)>,
    n_open: Cell<isize>,
}

const FLOAT: usize = 0;
const DOUBLE: usize = 1;

impl Datatypes for List {
    type Datatype = usize;
    type Error = ();

    fn base(&self, datatype: usize) -> Option<Base> {
        [(FLOAT, Base::F32), (DOUBLE, Base::F64)]
            .into_iter()
            .find(|&(known, _)| known == datatype)
            .map(|(_, base)| base)
    }

    fn n_bytes(&self, datatype: usize) -> Result<usize, ()> {
        Ok(self.types[datatype].0)
    }

    fn making(&self, datatype: usize) -> Result<Making<usize>, ()> {
        let making = self.types[datatype].1.clone();
        let n_given = match &making {
            Making::Named => 0,
            Making::Dup(_) | Making::Contiguous(_) => 1,
            Making::Of(parts) => parts.len() as isize,
        };
        self.n_open.set(self.n_open.get() + n_given);
        Ok(making)
    }

    fn release(&self, _: usize) {
        self.n_open.set(self.n_open.get() - 1);
    }
}

fn of(n_bytes: usize, making: Making<usize>) -> Signature {
    let types = vec![
        (4, Making::Named),
        (8, Making::Named),
        (40, Making::Contiguous(FLOAT)),
        (12, Making::Of(vec![FLOAT])),
        (0, Making::Contiguous(DOUBLE)),
        (1, Making::Named),
        (n_bytes, making),
    ];
    let list = List { types, n_open: Cell::new(0) };
    let signature = Signature::of(&list, 6).unwrap();
    assert_eq!(list.n_open.get(), 0, "what MPI gave is given back");
    assert_eq!(Signature::from_number(signature.to_number().unwrap()), signature);
    signature
}

#[test]
fn signatures_look_through_layouts() {
    let floats =
        |n_bytes, is_dense| Signature { base: Some(Base::F32), n_bytes, is_dense, is_own: false };
    assert_eq!(of(4, Making::Dup(FLOAT)), floats(4, true));
    assert_eq!(of(80, Making::Contiguous(2)), floats(80, true));
    assert_eq!(of(24, Making::Contiguous(3)), floats(24, false));
    assert_eq!(of(52, Making::Of(vec![2, 3])), floats(52, false));
}

#[test]
fn parts_without_values_are_no_part_of_a_signature() {
    assert_eq!(of(4, Making::Of(vec![FLOAT, 4])).base, Some(Base::F32));
    assert_eq!(of(12, Making::Of(vec![FLOAT, DOUBLE])).base, None);
    assert_eq!(of(0, Making::Contiguous(4)).base, None);
    assert_eq!(of(3, Making::Contiguous(5)).base, Some(Base::Other));
}
