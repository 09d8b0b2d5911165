//! Names and numbers of tenants.

use super::*;

#[test]
fn a_tenant_is_its_name() {
    assert_eq!(Tenant::default().id(), 0);
    assert_eq!(Tenant::named("default"), Tenant::default());
    // The digest of "abc" is in FIPS 180-2, appendix B.1.
    assert_eq!(Tenant::named("abc").id(), 0xba78_16bf_8f01_cfea);
    assert_ne!(Tenant::named("a").id(), Tenant::named("b").id());
    let (long, longer) = ("x".repeat(65), "x".repeat(66));
    assert_eq!(Tenant::named(&long).name(), Tenant::named(&longer).name());
    assert_eq!(Tenant::named(&long).name().len(), 64);
    assert_ne!(Tenant::named(&long).id(), Tenant::named(&longer).id());
    assert_eq!(Tenant::named("a\nb").name(), "a\u{fffd}b");
}

#[test]
fn a_key_is_never_shown() {
    let tenant = Tenant::of_key("abc");
    assert_eq!(tenant.name(), "key-ba7816bf");
    assert_eq!(
        tenant,
        Tenant::named("key-ba7816bf"),
        "so that it can be given a weight"
    );
    assert_ne!(tenant, Tenant::of_key("abd"));
}

#[test]
fn names_are_bounded_and_those_in_use_stay() {
    let mut names = Names::default();
    let first = Tenant::named("first");
    names.remember(&first, std::iter::empty());
    for number in 0..3 * Names::MOST {
        let tenant = Tenant::named(&number.to_string());
        names.remember(&tenant, [first.id()].into_iter());
        assert!(names.0.len() <= Names::MOST);
    }
    assert_eq!(&*names.get(first.id()), "first");
}
