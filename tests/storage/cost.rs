//! The number of Redis commands that a message costs.

use actors::clock::now;
use futures_util::future::join_all;

use crate::storage::support::{Redis, ReplicaView, block_on, storage};

/// Commands since the statistics were reset, including those of scripts.
fn commands(redis: &Redis) -> u64 {
    let stats = redis.command(&["INFO", "commandstats"]);
    if std::env::var_os("SHOW_COMMANDS").is_some() {
        eprintln!("{stats}");
    }
    let counted = stats.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let is_own = ["info", "config|resetstat"].contains(&name);
        rest.split(',').next()?.parse::<u64>().ok().filter(|_| !is_own)
    });
    counted.sum()
}

/// Sends `messages` to `recipients` in turn, in one batch, and has them delivered and acknowledged. Returns the number
/// of commands.
fn commands_for(recipients: usize, messages: usize) -> u64 {
    let redis = Redis::start();
    block_on(async {
        let storage = storage(redis.url()).await;
        let view = ReplicaView::of(&*storage, "acme");
        let sessions = join_all((0..recipients).map(|_| view.join())).await;
        for is_measured in [false, true] {
            let batch: Vec<_> = (0..messages).map(|at| view.direct(sessions[at % recipients])).collect();
            redis.command(&["CONFIG", "RESETSTAT"]);
            view.store.append(batch, now()).await.unwrap();
            let leased = join_all(sessions.iter().map(|session| view.lease(*session))).await;
            let acknowledged = join_all(sessions.iter().zip(leased).map(|(session, leased)| {
                let deliveries = leased.unwrap().deliveries;
                let ids: Vec<_> = deliveries.iter().map(|delivery| delivery.message.id).collect();
                view.acknowledge(*session, &ids)
            }));
            let acknowledged = acknowledged.await.into_iter().map(|done| done.unwrap().acknowledged);
            assert_eq!(acknowledged.sum::<usize>(), messages);
            if is_measured {
                break;
            }
        }
        commands(&redis)
    })
}

#[test]
fn a_message_in_a_full_batch_costs_few_commands() {
    for recipients in [1, 8, 64] {
        let commands = commands_for(recipients, 64);
        eprintln!("64 messages to {recipients} recipients: {commands} commands");
        assert!(commands <= 6 * 64, "{recipients} recipients: {commands}");
    }
}
