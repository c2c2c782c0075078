//! Type signatures: the element types of a datatype, without its handle and layout.
//!
//! MPI requires equal signatures on all ranks, not equal datatypes. One rank may send a hundred
//! floats as one value of a derived datatype, and another may receive them as a hundred floats.

/// Element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BaseType {
    /// 32-bit float of C or Fortran.
    F32 = 1,
    /// 64-bit float.
    F64 = 2,
    /// 32-bit signed integer.
    I32 = 3,
    /// 64-bit signed integer.
    I64 = 4,
    /// Any other type.
    Other = 5,
}

impl BaseType {
    /// All element types.
    pub const ALL: [Self; 5] = [Self::F32, Self::F64, Self::I32, Self::I64, Self::Other];

    /// Returns whether codecs support this type.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    /// Bytes of a value; `None` if unknown.
    #[must_use]
    pub const fn n_bytes(self) -> Option<usize> {
        match self {
            Self::F32 | Self::I32 => Some(4),
            Self::F64 | Self::I64 => Some(8),
            Self::Other => None,
        }
    }
}

/// Signature of one value of a datatype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Element type; `None` if there are several types or no elements.
    pub base: Option<BaseType>,
    /// Bytes without gaps.
    pub n_bytes: usize,
    /// True if the elements are contiguous and in order in memory.
    pub is_dense: bool,
    /// True if MPI predefines the type.
    pub is_own: bool,
}

/// Constructor of a datatype, with its component datatypes `D`.
#[derive(Clone, Debug)]
pub enum TypeConstructor<D> {
    /// Predefined by MPI.
    Named,
    /// A duplicate of a datatype.
    Dup(D),
    /// Contiguous values of a datatype.
    Contiguous(D),
    /// Components in some other layout, without those that occur zero times.
    Of(Vec<D>),
}

/// Queries of datatypes.
pub trait Datatypes {
    /// Handle of a datatype.
    type Datatype: Copy;
    /// Error of a query.
    type Error;

    /// Element type of a predefined datatype; `None` for all others.
    fn base(&self, datatype: Self::Datatype) -> Option<BaseType>;
    /// Bytes of one value.
    ///
    /// # Errors
    /// The error of MPI.
    fn n_bytes(&self, datatype: Self::Datatype) -> Result<usize, Self::Error>;
    /// Constructor of a datatype. The caller must [release](Self::release) the components.
    ///
    /// # Errors
    /// The error of MPI.
    fn constructor(
        &self,
        datatype: Self::Datatype,
    ) -> Result<TypeConstructor<Self::Datatype>, Self::Error>;
    /// Releases a component from [`constructor`](Self::constructor).
    fn release(&self, datatype: Self::Datatype);
}

impl Signature {
    /// Determines the signature of a datatype.
    ///
    /// # Errors
    /// The error of MPI.
    pub fn of<D: Datatypes>(types: &D, datatype: D::Datatype) -> Result<Self, D::Error> {
        let n_bytes = types.n_bytes(datatype)?;
        if let Some(base) = types.base(datatype) {
            return Ok(Self { base: Some(base), n_bytes, is_dense: true, is_own: true });
        }
        let (parts, keeps_dense) = match types.constructor(datatype)? {
            TypeConstructor::Named => {
                let base = Some(BaseType::Other);
                return Ok(Self { base, n_bytes, is_dense: false, is_own: true });
            }
            TypeConstructor::Dup(part) | TypeConstructor::Contiguous(part) => (vec![part], true),
            TypeConstructor::Of(parts) => (parts, false),
        };
        let mut whole = Self { base: None, n_bytes, is_dense: keeps_dense, is_own: false };
        let (mut bases, mut failed) = (Vec::new(), None);
        for part in parts {
            match Self::of(types, part) {
                Ok(part) => {
                    whole.is_dense &= part.is_dense;
                    if part.n_bytes > 0 {
                        bases.push(part.base);
                    }
                }
                Err(error) => failed = Some(error),
            }
            types.release(part);
        }
        if let [first, rest @ ..] = &bases[..]
            && rest.iter().all(|base| base == first)
            && n_bytes > 0
        {
            whole.base = *first;
        }
        failed.map_or(Ok(whole), Err)
    }

    /// Encodes the signature as a number for an MPI attribute; `None` if `n_bytes` is too large.
    ///
    /// Bit 0 is `is_dense`, bits 1 to 3 are `base` (0: none), bit 4 is `is_own`, and the higher
    /// bits are `n_bytes`.
    #[must_use]
    pub fn to_number(self) -> Option<usize> {
        let code = self.base.map_or(0, |base| base as usize) << 1 | usize::from(self.is_dense);
        Some(self.n_bytes.checked_mul(32)? | usize::from(self.is_own) << 4 | code)
    }

    /// Decodes a number from [`to_number`](Self::to_number).
    #[must_use]
    pub fn from_number(number: usize) -> Self {
        let base = BaseType::ALL.into_iter().find(|&base| base as usize == number >> 1 & 7);
        Self { base, n_bytes: number >> 5, is_dense: number & 1 == 1, is_own: number & 16 != 0 }
    }
}
