//! Finds the addresses of a server by its name. A backend that was added leads to no link-local address: services of the machine
//! or of its cloud listen there and trust each caller.

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    task::{Context, Poll},
    vec,
};

use actors::model::BackendOrigin;
use futures_util::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower_service::Service;

/// Why a server is refused.
pub const LINK_LOCAL: &str = "it leads to a link-local address, which no added backend may use";

/// The address of the metadata service of AWS over IPv6, which is not link-local.
const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// The resolver of the system, without what the origin of the backend excludes.
#[derive(Clone)]
pub struct Resolver {
    system: GaiResolver,
    origin: BackendOrigin,
}

impl Resolver {
    /// For backends of this origin.
    pub fn new(origin: BackendOrigin) -> Self {
        Self {
            system: GaiResolver::new(),
            origin,
        }
    }
}

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, io::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        self.system.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (found, origin) = (self.system.call(name), self.origin);
        Box::pin(async move {
            let mut addresses: Vec<SocketAddr> = found.await?.collect();
            let had_any = !addresses.is_empty();
            addresses.retain(|address| origin != BackendOrigin::Added || !is_link_local(address.ip()));
            if had_any && addresses.is_empty() {
                return Err(io::Error::other(LINK_LOCAL));
            }
            Ok(addresses.into_iter())
        })
    }
}

/// Whether an address is link-local, in one of the ways to write an IPv4 address as one of IPv6, or that of a metadata service.
pub fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => {
            // Mapped, compatible, and translated (RFC 4291, section 2.5.5; RFC 6052).
            let embedded = match address.segments() {
                [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
                    Some(u32::from(high) << 16 | u32::from(low))
                }
                _ => None,
            };
            address.is_unicast_link_local()
                || address == METADATA
                || embedded.is_some_and(|address| std::net::Ipv4Addr::from_bits(address).is_link_local())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_addresses_are_known_in_every_form() {
        for address in [
            "169.254.0.0",
            "169.254.255.255",
            "fe80::1",
            "febf:ffff::1",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::169.254.169.254",
            "fd00:ec2::254",
        ] {
            assert!(is_link_local(address.parse().unwrap()), "{address}");
        }
        for address in [
            "169.253.0.1",
            "127.0.0.1",
            "::1",
            "fec0::1",
            "fd00::1",
            "::ffff:10.0.0.1",
            "64:ff9b::1.1.1.1",
        ] {
            assert!(!is_link_local(address.parse().unwrap()), "{address}");
        }
    }
}
