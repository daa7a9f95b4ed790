
"use strict";

// Text becomes text nodes only: no part of the document becomes markup.
function element(name, ...children) {
  const made = document.createElement(name);
  made.append(...children.filter((child) => child !== undefined && child !== ""));
  return made;
}

const code = (text) => element("code", text);

function link(reference) {
  const [section, name] = reference.split("/").slice(-2);
  const made = element("a", name);
  made.href = `#${section}/${name}`;
  return code(made);
}

// A schema in a line; the members of an object are a table.
function brief(schema) {
  if (schema === undefined) return "";
  if (schema.$ref) return link(schema.$ref);
  const choices = schema.oneOf ?? schema.anyOf;
  if (choices) return element("span", ...choices.flatMap((one, at) => (at ? [" or ", brief(one)] : [brief(one)])));
  if (schema.enum) return element("span", ...schema.enum.flatMap((one) => [code(JSON.stringify(one)), " "]));
  if (schema.items) return element("span", "list of ", brief(schema.items), bounds(schema));
  const type = [schema.type ?? (schema.properties ? "object" : "anything")].flat().join(" or ");
  return element("span", type, schema.format ? ` (${schema.format})` : "", bounds(schema));
}

function bounds({ minimum, maximum, minLength, maxLength, maxItems, pattern, default: usual }) {
  const range = (least, most) => (most === undefined ? `${least} or more` : `${least ?? 0} to ${most}`);
  const parts = [];
  if ((minimum ?? maximum) !== undefined) parts.push(range(minimum, maximum));
  if ((minLength ?? maxLength) !== undefined) parts.push(`${range(minLength, maxLength)} characters`);
  if (maxItems !== undefined) parts.push(`at most ${maxItems}`);
  if (pattern !== undefined) parts.push(pattern);
  if (usual !== undefined) parts.push(`${JSON.stringify(usual)} by default`);
  return parts.map((part) => `, ${part}`).join("");
}

const row = (...cells) => element("tr", ...cells.map((cell) => element("td", cell)));
const table = (rows) => element("table", ...rows);

function members(schema) {
  if (schema.allOf) return element("div", ...schema.allOf.map(members));
  if (!schema.properties) return element("p", brief(schema));
  const required = schema.required ?? [];
  const rows = Object.entries(schema.properties).map(([name, member]) =>
    row(code(name), brief(member), (required.includes(name) ? "" : "Optional. ") + (member.description ?? "")));
  return table(rows);
}

function resolved(node, whole) {
  if (!node.$ref) return node;
  return node.$ref.slice(2).split("/").reduce((at, name) => at[name], whole);
}

const media = (content = {}) => Object.entries(content).flatMap(([type, { schema }]) => [brief(schema), ` ${type} `]);

function operation(method, path, described, whole) {
  const summary = element("span", described.summary ?? "");
  const parts = [element("summary", element("b", method.toUpperCase()), code(path), " ", summary)];
  if (described.description) parts.push(element("p", described.description));
  if (described.security) parts.push(element("p", "No key is needed."));
  const parameters = (described.parameters ?? []).map((parameter) => resolved(parameter, whole));
  if (parameters.length) {
    parts.push(element("h3", "Parameters"), table(parameters.map(({ name, in: place, required, schema, description }) =>
      row(code(name), `${place}${required ? "" : ", optional"}`, brief(schema), description ?? ""))));
  }
  if (described.requestBody) parts.push(element("h3", "Body"), element("p", ...media(described.requestBody.content)));
  const answers = Object.entries(described.responses).map(([status, response]) => {
    const { description, content, headers = {} } = resolved(response, whole);
    const names = Object.keys(headers).map((name) => code(name));
    return row(code(status), description, element("span", ...media(content), ...names));
  });
  parts.push(element("h3", "Answers"), table(answers));
  return element("details", ...parts);
}

function render(whole) {
  const { info, paths, tags = [], components } = whole;
  const parts = [element("h1", `${info.title} ${info.version}`)];
  parts.push(...(info.description ?? "").split("\n\n").map((text) => element("p", text)));
  const source = element("a", "openapi.json");
  source.href = "openapi.json";
  parts.push(element("p", "All of it for programs: ", source));
  const all = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, described]) => [method, path, described]));
  for (const tag of tags) {
    const own = all.filter(([, , described]) => described.tags?.includes(tag.name));
    parts.push(element("h2", tag.name), element("p", tag.description ?? ""));
    parts.push(...own.map(([method, path, described]) => operation(method, path, described, whole)));
  }
  parts.push(element("h2", "Schemas"));
  for (const [name, schema] of Object.entries(components.schemas)) {
    const summary = element("summary", code(name), " ", element("span", schema.description ?? ""));
    const made = element("details", summary, members(schema));
    made.id = `schemas/${name}`;
    parts.push(made);
  }
  document.querySelector("main").replaceChildren(...parts);
}

function show() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target) {
    target.open = true;
    target.scrollIntoView();
  }
}

addEventListener("hashchange", show);
fetch("openapi.json")
  .then((answer) => answer.json())
  .then(render)
  .then(show)
  .catch((error) => {
    document.querySelector("main").replaceChildren(element("p", `openapi.json cannot be read: ${error}`));
  });
