//! Bounds: requests, connections, bytes in flight and stored, pages, and the cost of one call.

mod budgets;
mod bytes_in_flight;
mod page_bytes;
mod paging;
mod rates;
mod rest_bytes_in_flight;
mod worst_calls;
