//! Enums whose values have names, for use in documents and on the command line.

use core::fmt;

/// An enum whose values have names. [`named!`](crate::named!) implements it.
pub trait Named {
    /// Module and name of the enum: `policy::wait::WaitKind`.
    const PATH: &'static str;
    /// All names, in the order of the variants.
    const NAMES: &'static [&'static str];
    /// The doc comments of the variants, in the order of the variants. Empty for a variant without one.
    const MEANINGS: &'static [&'static str];

    /// The name of this value: one of [`NAMES`](Named::NAMES).
    fn name(&self) -> &'static str;
}

/// The error for a string that is not a name of the enum. The message lists the valid names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownName {
    names: &'static [&'static str],
}

impl UnknownName {
    /// Makes the error for a string that names no value of `T`.
    pub const fn of<T: Named>() -> Self {
        Self { names: T::NAMES }
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected ")?;
        for (place, name) in self.names.iter().enumerate() {
            match self.names.len() - place {
                1 => f.write_str(name)?,
                2 => write!(f, "{name} or ")?,
                _ => write!(f, "{name}, ")?,
            }
        }
        Ok(())
    }
}

impl core::error::Error for UnknownName {}

/// Declares an enum whose variants have names: `Rounded = "rounded"`.
///
/// It generates the enum, `name()` and [`Named`]. For an enum without data, it also generates `ALL`, `Display` (writes
/// the name) and `FromStr` (reads a name, or returns [`UnknownName`]). A variant may have doc comments, but no other
/// attribute.
///
/// ```
/// units::named! {
///     /// How a number is shown.
///     #[derive(Clone, Copy, PartialEq, Eq, Debug)]
///     pub enum Shown {
///         /// As it is.
///         Exactly = "exactly",
///         /// To three digits.
///         Rounded = "rounded",
///     }
/// }
/// assert_eq!(Shown::ALL.map(Shown::name), ["exactly", "rounded"]);
/// assert_eq!("rounded".parse(), Ok(Shown::Rounded));
/// assert_eq!("round".parse::<Shown>().unwrap_err().to_string(), "expected exactly or rounded");
/// ```
#[macro_export]
macro_rules! named {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $Enum:ident {
            $($(#[doc = $doc:literal])* $Variant:ident = $name:literal),+ $(,)?
        }
    ) => {
        $(#[$attribute])*
        $visibility enum $Enum {
            $($(#[doc = $doc])* $Variant),+
        }

        impl $Enum {
            /// All values, in the order of their declaration.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$Variant),+];

            /// The name on the command line and in documents.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Variant => $name),+
                }
            }
        }

        impl $crate::Named for $Enum {
            const PATH: &'static str = ::core::concat!(::core::module_path!(), "::", ::core::stringify!($Enum));
            const NAMES: &'static [&'static str] = &[$($name),+];
            const MEANINGS: &'static [&'static str] = &[$(::core::concat!($($doc),*)),+];

            fn name(&self) -> &'static str {
                Self::name(*self)
            }
        }

        impl ::core::fmt::Display for $Enum {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str(Self::name(*self))
            }
        }

        impl ::core::str::FromStr for $Enum {
            type Err = $crate::UnknownName;

            fn from_str(text: &str) -> ::core::result::Result<Self, Self::Err> {
                Self::ALL.into_iter().find(|value| Self::name(*value) == text).ok_or($crate::UnknownName::of::<Self>())
            }
        }
    };
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $Enum:ident {
            $(
                $(#[doc = $doc:literal])*
                $Variant:ident $({ $($field:tt)* })? $(( $($content:tt)* ))? = $name:literal
            ),+ $(,)?
        }
    ) => {
        $(#[$attribute])*
        $visibility enum $Enum {
            $($(#[doc = $doc])* $Variant $({ $($field)* })? $(( $($content)* ))?),+
        }

        impl $Enum {
            /// The name on the command line and in documents, without the data of the variant.
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$Variant { .. } => $name),+
                }
            }
        }

        impl $crate::Named for $Enum {
            const PATH: &'static str = ::core::concat!(::core::module_path!(), "::", ::core::stringify!($Enum));
            const NAMES: &'static [&'static str] = &[$($name),+];
            const MEANINGS: &'static [&'static str] = &[$(::core::concat!($($doc),*)),+];

            fn name(&self) -> &'static str {
                Self::name(self)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString as _;

    named! {
        /// A count.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        enum Count {
            /// The first.
            One = "one",
            /// The second
            /// of three.
            Two = "two",
            More = "more-than-two",
        }
    }

    named! {
        #[derive(Debug)]
        enum Holding {
            /// Nothing.
            Nothing = "nothing",
            One(#[expect(dead_code)] u8) = "one",
            Named { _first: u8, _second: u8 } = "named",
        }
    }

    #[test]
    fn a_name_stands_for_its_value_and_an_error_lists_all() {
        for value in Count::ALL {
            assert_eq!((value.to_string().parse(), Named::name(&value)), (Ok(value), value.name()));
        }
        let error = "One".parse::<Count>().unwrap_err();
        assert_eq!(error.to_string(), "expected one, two or more-than-two");
        assert_eq!(Count::PATH, "units::named::tests::Count");
        assert_eq!(Count::MEANINGS, [" The first.", " The second of three.", ""]);
    }

    #[test]
    fn what_holds_data_has_a_name_too() {
        let names = [Holding::Nothing, Holding::One(1), Holding::Named { _first: 1, _second: 2 }].map(|v| v.name());
        assert_eq!((&names[..], Holding::MEANINGS[0]), (Holding::NAMES, " Nothing."));
    }
}
