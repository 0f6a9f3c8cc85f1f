//! The orders of a shop.

use serde_json::Value;

/// The sum of an order, in cents: the price of each item times its count.
pub fn total(order: &Value) -> u64 {
    let items = order["items"].as_array().into_iter().flatten();
    items.filter_map(|item| item["cents"].as_u64()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_order_costs_its_items() {
        let order = json!({"items": [{"cents": 250, "count": 2}, {"cents": 100, "count": 1}]});
        assert_eq!(total(&order), 600);
        assert_eq!(total(&json!({})), 0);
    }
}
