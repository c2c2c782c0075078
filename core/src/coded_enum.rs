//! Enums whose variants have a code in messages and a name.

/// Defines an enum, the list of its variants, and their names.
macro_rules! coded_enum {
    (
        $(#[$meta:meta])*
        pub enum $Enum:ident {
            $($(#[$of_variant:meta])* $Variant:ident = $code:literal, $name:literal;)*
        }
    ) => {
        $(#[$meta])*
        #[repr(u8)]
        pub enum $Enum {
            $($(#[$of_variant])* $Variant = $code,)*
        }

        impl $Enum {
            /// All variants, in the order of their codes.
            pub const ALL: [Self; [$($code),*].len()] = [$(Self::$Variant),*];

            /// Returns the variant with this code in a message.
            #[must_use]
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$Variant),)*
                    _ => None,
                }
            }

            /// Returns the name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Variant => $name,)*
                }
            }
        }
    };
}
pub(crate) use coded_enum;
