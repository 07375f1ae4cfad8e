//! `auth.certificates`: whose the certificates of clients are, by the names in them.

use holdfast_types::TenantId;

use crate::check::Checker;
use crate::compound::{Optional, Required};
use crate::forms::File;
use crate::identity::TEXT;
use crate::path::Path;
use crate::section::section;
use crate::text::TENANT;

/// A name in a client's certificate, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateName {
    /// `uri`, `dns` or `email`.
    pub kind: Box<str>,
    /// What stands before the tenant's name, or all of it.
    pub before: Box<str>,
    /// What stands behind the tenant's name. None: the tenant's name is not in it.
    pub behind: Option<Box<str>>,
    /// The tenant, where its name is not in it.
    pub tenant: Option<TenantId>,
}

section! {
    /// A name in the certificates of clients, and whose it is.
    pub(crate) struct CertificateForm {
        /// The kind of name and the name to the letter: `uri=`, `dns=` or `email=`, such as `uri=spiffe://prod/acme`. With `{tenant}` in it, once, that part is the tenant's name: `uri=spiffe://prod/tenant/{tenant}`.
        name: Option<Box<str>> = None, Required(TEXT);
        /// The tenant, if the name does not say it.
        tenant: Option<TenantId> = None, Optional(TENANT);
    }
}

/// Whose certificates are. A name that could be two tenants' is nobody's, so none is there twice.
pub(crate) fn check(
    checker: &mut Checker<'_, '_>,
    file: &File,
    forms: &[CertificateForm],
    path: &Path<'_>,
) -> Vec<CertificateName> {
    let list = path.field("certificates");
    let asks = file.listen.data_tls.as_ref().is_some_and(|tls| tls.clients.is_some());
    if !forms.is_empty() && !asks {
        checker.fault(&list, "needs listen.data_tls.clients, which says who signs the certificates of clients");
    }
    let data = Path::Root.field("listen");
    let data = data.field("data_tls");
    if file.listen.data_tls.as_ref().is_some_and(|tls| tls.required && tls.clients.is_none()) {
        checker.fault(&data.field("required"), "needs clients, which says who signs the certificates of clients");
    }
    checker.check_unique_exactly(&list, "name", forms.iter().map(|one| one.name.as_deref()));
    let mut names = Vec::new();
    for (index, one) in forms.iter().enumerate() {
        let Some(name) = &one.name else { continue };
        match certificate_name(name, one.tenant.clone()) {
            Ok(name) => names.push(name),
            Err(why) => checker.fault(&list.item(index), why),
        }
    }
    names
}

fn certificate_name(text: &str, tenant: Option<TenantId>) -> Result<CertificateName, &'static str> {
    const PLACE: &str = "{tenant}";
    let (kind, name) = text.split_once('=').ok_or("has a name without uri=, dns= or email= before it")?;
    if !["uri", "dns", "email"].contains(&kind) || name.is_empty() {
        return Err("has a name that does not begin with uri=, dns= or email=");
    }
    // As certificates are read: DNS names mean the same in any case.
    let name = if kind == "dns" { name.to_ascii_lowercase() } else { name.to_owned() };
    let mut parts = name.split(PLACE);
    let (before, behind, more) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    match (behind, &tenant) {
        _ if more.is_some() => Err("has {tenant} in its name more than once"),
        (Some(_), Some(_)) => Err("names its tenant twice: by tenant, and in the name"),
        (None, None) => Err("does not say whose it is; write tenant, or {tenant} in the name"),
        _ => Ok(CertificateName { kind: kind.into(), before: before.into(), behind: behind.map(Into::into), tenant }),
    }
}
