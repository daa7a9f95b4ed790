// What the pages use of Preact, without its types of components: templates are plain calls for TypeScript.
export const h: any;
export const render: any;
