//! MCP on any transport: revisions, tools, prompts, resources, subscriptions, tasks, refusals.

mod caller_mistakes;
mod eras;
mod prompts;
mod refusals;
mod resources;
mod subscriptions;
mod tasks;
mod tool_list;
mod tools;
