//! A gateway without a server: the backends of one file for one client, which is at the other end of the standard streams.
//! It has no port and keeps nothing.

use std::{io, process::ExitCode, sync::Arc, time::Duration};

use actix_rt::Arbiter;
use actors::{
    broker::{Broker, BrokerHandle},
    gateway::GatewaySettings,
    model::ProjectId,
    session::CloseReason,
    silence,
};
use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    configuration,
    services::Services,
    settings::{self, OwnNames},
};
use crate::{
    edge::Admission,
    transport::{
        Connections, TransportContext,
        stdio::{self, InputEnd},
    },
};
use api::{auth::AuthPolicy, mcp::reply};
use cli::broker::{GatewayOfClient, Observer};
use common::{config::Config, exit, stop_signal::stop_signal, telemetry};

/// Longest time at the end of the process for the spans that are queued.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(200);

/// How long the last lines of a client that has ended its input may wait to be served.
const LAST_LINES_TIME_MAX: Duration = Duration::from_secs(2);

/// Serves the backends of a configuration to the client until it ends or the process is asked to stop. Open calls then have
/// `shutdown_grace`. Settings of servers and storages have no effect.
///
/// # Errors
/// The parts cannot be started, or signals cannot be received.
pub async fn serve(config: &Config, of_client: GatewayOfClient) -> io::Result<ExitCode> {
    let GatewayOfClient {
        client,
        followed,
        name,
        announces_lists,
        observer,
    } = of_client;
    if let Some(name) = name {
        reply::set_server_name(name);
    }
    let backends = Arc::new(watch::Sender::new(Arc::clone(&config.backends)));
    let outbound = settings::outbound_budget(config);
    let gateway = GatewaySettings {
        announces_lists,
        ..settings::gateway(config, backends.subscribe(), OwnNames::default(), &outbound)
    };
    let storage = storage::open(settings::memory(config)).await?;
    let worker = Arbiter::current();
    worker.spawn(silence::beat_forever());
    let gave_up = Arc::new(Notify::new());
    let tell = Arc::clone(&gave_up);
    let settings = settings::broker(config, None, Some(gateway));
    let broker = Broker::start(settings, storage, vec![worker], move || tell.notify_one());
    let policy = AuthPolicy {
        is_required: false,
        admin_key: None,
        jwt: None,
        rate_limit: config.rate_limit,
        allows_agent_answers: false,
    };
    let Services { auth, service, .. } = Services::of(&broker, config, policy, None, &outbound)?;
    let connections = Connections::new(1);
    let context = TransportContext {
        connections: Arc::clone(&connections),
        admission: Admission::new(&[], &[]),
        auth,
        service,
        timeouts: settings::timeouts(config),
        replicas: None,
        inbound: settings::inbound_budget(config),
    };
    let _following =
        followed.map(|followed| configuration::follow(&followed.file, followed.read, Arc::clone(&backends), |_| {}));

    let _observing = match observer {
        Some(observer) => observed(&broker, observer).await,
        None => None,
    };

    let input = Arc::<InputEnd>::default();
    // A task of its own, so that what is awaited at the same time is not looked at with each message.
    let told = Arc::clone(&input);
    let mut connection = AbortOnDropHandle::new(actix_rt::spawn(async move {
        stdio::serve(&context, (client.input, client.output), told).await
    }));
    let code = tokio::select! {
        ended = &mut connection => return ended.map_err(io::Error::from)?.map(|()| ExitCode::SUCCESS),
        () = gave_up.notified() => {
            tracing::error!("the root actor gave up after repeated failures: the process ends");
            ExitCode::from(exit::GAVE_UP)
        }
        signal = stop_signal() => {
            signal?;
            ExitCode::SUCCESS
        }
        () = input.all_served.notified() => ExitCode::SUCCESS,
        // Lines wait while the client does not read earlier answers.
        () = async {
            input.closed.notified().await;
            sleep(LAST_LINES_TIME_MAX).await;
        } => ExitCode::SUCCESS,
    };
    connections.close_all(CloseReason::ShuttingDown);
    if timeout(config.shutdown_grace, connection).await.is_err() {
        tracing::warn!("the shutdown grace is over: cutting open calls");
    }
    telemetry::shut_down(FLUSH_TIMEOUT);
    Ok(code)
}

/// Lets an observer follow the backends until the returned handle is dropped.
async fn observed(broker: &BrokerHandle, observer: Observer) -> Option<AbortOnDropHandle<()>> {
    let project = broker.project(&ProjectId::default_project()).await.ok()?;
    let gateway = Arc::clone(project.gateway()?.shared());
    Some(AbortOnDropHandle::new(actix_rt::spawn(observer(gateway))))
}
