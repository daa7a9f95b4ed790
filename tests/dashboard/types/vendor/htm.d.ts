// What the pages use of htm.
declare const htm: { bind(h: unknown): (parts: TemplateStringsArray, ...values: unknown[]) => any };
export default htm;
