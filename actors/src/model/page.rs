//! The bytes of one page of a list.

/// Bytes of the items of one page, at most, unless a single item is larger. The result of a tool holds them twice,
/// and common WebSocket clients accept frames of at most 1 MiB.
pub const PAGE_BYTES_MAX: usize = 384 * 1024;

/// The bytes left on a page.
#[derive(Clone, Debug)]
pub struct PageRoom {
    left: usize,
    is_empty: bool,
}

impl PageRoom {
    /// An empty page of this many bytes.
    pub const fn new(bytes_max: usize) -> Self {
        Self {
            left: bytes_max,
            is_empty: true,
        }
    }

    /// Takes the bytes of an item. False: the page ends before the item. The first item always fits, so that a reader
    /// can get past it.
    pub fn try_take(&mut self, len: usize) -> bool {
        let fits = self.is_empty || len <= self.left;
        if fits {
            self.left = self.left.saturating_sub(len);
            self.is_empty = false;
        }
        fits
    }
}

impl Default for PageRoom {
    fn default() -> Self {
        Self::new(PAGE_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_takes_what_fits_and_a_large_first_item_alone() {
        let mut room = PageRoom::new(10);
        assert_eq!([4, 6, 0, 1].map(|len| room.try_take(len)), [true, true, true, false]);
        let mut room = PageRoom::new(10);
        assert_eq!([11, 1].map(|len| room.try_take(len)), [true, false]);
    }
}
