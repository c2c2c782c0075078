//! Queries about datatypes: size, and construction of derived types.

use std::ffi::c_int;
use std::ptr;

use super::{DatatypeApi, MpiErrorCode, MpiLibrary, checked};
use crate::ffi::abi::{Abi, MpiHandle};
use crate::signature::{BaseType, Datatypes, TypeConstructor};

// SAFETY of the blocks below: callers of `MpiApi` guarantee valid handles from the program.
// Pointers are to local variables and arrays. The lengths of arrays are the counts that are passed
// with them.
impl<A: Abi> Datatypes for MpiLibrary<A> {
    type Datatype = MpiHandle;
    type Error = MpiErrorCode;

    fn base(&self, datatype: MpiHandle) -> Option<BaseType> {
        let (_, bases) = self.handles.types.iter().find(|(known, _)| *known == datatype)?;
        // The query cannot fail for a predefined datatype.
        match self.n_bytes(datatype).ok()? {
            4 => bases[0],
            8 => bases[1],
            _ => None,
        }
    }

    fn n_bytes(&self, datatype: MpiHandle) -> Result<usize, MpiErrorCode> {
        let mut n_bytes = 0;
        // SAFETY: see above.
        checked(unsafe { (self.functions.type_size)(A::restore(datatype), &raw mut n_bytes) })?;
        Ok(usize::try_from(n_bytes).unwrap_or(0))
    }

    fn constructor(&self, datatype: MpiHandle) -> Result<TypeConstructor<MpiHandle>, MpiErrorCode> {
        let datatype = A::restore(datatype);
        let null = A::restore(self.handles.datatype_null);
        let [named, dup, contiguous, of_struct] = A::COMBINERS;
        let (n, combiner) = self.envelope(datatype)?;
        if combiner == named {
            return Ok(TypeConstructor::Named);
        }
        let lengths = n.map(|n| usize::try_from(n).unwrap_or(0));
        let (mut integers, mut addresses) = (vec![0; lengths[0]], vec![0isize; lengths[1]]);
        let (mut counts, mut types) = (vec![0i64; lengths[2]], vec![null; lengths[3]]);
        // SAFETY: the arrays have the lengths that MPI returned.
        checked(unsafe {
            let (integers, addresses) = (integers.as_mut_ptr(), addresses.as_mut_ptr());
            let types = types.as_mut_ptr();
            match self.functions.type_contents_c {
                Some(contents) => {
                    let counts = counts.as_mut_ptr();
                    contents(datatype, n[0], n[1], n[2], n[3], integers, addresses, counts, types)
                }
                None => {
                    let [n0, n1, _, n3] = n.map(|n| n as c_int);
                    (self.functions.type_contents)(datatype, n0, n1, n3, integers, addresses, types)
                }
            }
        })?;
        let types: Vec<MpiHandle> = types.into_iter().map(A::erase).collect();
        Ok(match types[..] {
            [part] if combiner == dup => TypeConstructor::Dup(part),
            [part] if combiner == contiguous => TypeConstructor::Contiguous(part),
            _ if combiner == of_struct => {
                // `counts` holds the number of components, then the number of values of each one.
                let counts = if counts.is_empty() {
                    integers.into_iter().map(i64::from).collect()
                } else {
                    counts
                };
                let used = types.iter().zip(counts.iter().skip(1)).filter(|(part, n)| {
                    // MPI has made handles for unused components too.
                    if **n == 0 {
                        self.release(**part);
                    }
                    **n > 0
                });
                TypeConstructor::Of(used.map(|(&part, _)| part).collect())
            }
            _ => TypeConstructor::Of(types),
        })
    }

    /// Predefined datatypes must not be freed. Besides named ones, these are types of Fortran's
    /// parameters, made of no datatype (`MPI_Type_create_f90_real` …), and pairs of a value and an
    /// index, made of two and nothing else (`MPI_Type_get_value_index`).
    fn release(&self, datatype: MpiHandle) {
        let Ok((n, combiner)) = self.envelope(A::restore(datatype)) else { return };
        let [named, _, _, of_struct] = A::COMBINERS;
        let is_parametric = n[3] == 0 && combiner != of_struct;
        if combiner != named && !is_parametric && n != [0, 0, 0, 2] {
            self.free_type(datatype);
        }
    }
}

impl<A: Abi> MpiLibrary<A> {
    /// Returns whether a datatype is predefined.
    pub(crate) fn is_named(&self, datatype: MpiHandle) -> Result<bool, MpiErrorCode> {
        let (_, combiner) = self.envelope(A::restore(datatype))?;
        Ok(combiner == A::COMBINERS[0])
    }

    /// Numbers of integers, addresses, large counts and datatypes in a datatype's constructor, and
    /// its combiner.
    fn envelope(&self, datatype: A::Handle) -> Result<([i64; 4], c_int), MpiErrorCode> {
        let (mut n, mut combiner) = ([0; 4], 0);
        if let Some(envelope) = self.functions.type_envelope_c {
            let [n0, n1, n2, n3] = n.each_mut().map(ptr::from_mut);
            // SAFETY: see above.
            checked(unsafe { envelope(datatype, n0, n1, n2, n3, &raw mut combiner) })?;
        } else {
            let mut early = [0; 3];
            let [n0, n1, n3] = early.each_mut().map(ptr::from_mut);
            let envelope = self.functions.type_envelope;
            // SAFETY: see above.
            checked(unsafe { envelope(datatype, n0, n1, n3, &raw mut combiner) })?;
            n = [early[0].into(), early[1].into(), 0, early[2].into()];
        }
        Ok((n, combiner))
    }
}
