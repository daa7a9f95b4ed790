// The REST API as the pages call it: for a method and a path, what /openapi.json says of the query, the body and the answer.
import type { paths } from './openapi';

type Segments<P extends string> = P extends `${infer Head}/${infer Tail}` ? [Head, ...Segments<Tail>] : [P];

// Whether the segments of a path fit those of a described one, in which `{name}` is any segment.
type Fits<Asked, Described> = Asked extends [infer A extends string, ...infer As]
  ? Described extends [infer D extends string, ...infer Ds]
    ? A extends D ? Fits<As, Ds>
    : D extends `{${string}}` ? Fits<As, Ds>
    : false
  : false
  : Described extends [] ? true : false;

// A path that is described as it is, else one with parameters.
type Described<P extends string> = P extends unknown ? `/api/v1/${P}` extends keyof paths
  ? `/api/v1/${P}`
  : { [K in keyof paths]: K extends `/api/v1/${infer Rest}` ? Fits<Segments<P>, Segments<Rest>> extends true ? K : never : never }[keyof paths] : never;

type Operation<M extends string, P extends string> = Described<P> extends infer K extends keyof paths
  ? Lowercase<M> extends infer V extends keyof paths[K] ? paths[K][V] : never
  : never;

type Content<R> = R extends { content: { 'application/json': infer A } } ? A : null;

// Whether the beginning of a path is not known: what is said of it cannot be checked.
type IsUnknown<P extends string> = string extends Segments<P>[0] ? true : false;

declare global {
  // The path itself, if it is described for the method.
  type KnownPath<M extends string, P extends string> = IsUnknown<P> extends true ? P : [Operation<M, P>] extends [never] ? never : P;
  type AnswerOf<M extends string, P extends string> = IsUnknown<P> extends true ? any
    : Operation<M, P> extends { responses: infer R } ? Content<R[keyof R & (200 | 201 | 202 | 204)]> : never;
  type QueryOf<M extends string, P extends string> = IsUnknown<P> extends true ? any
    : Operation<M, P> extends { parameters: { query?: infer Q } } ? [Q] extends [undefined] ? {} : { [N in keyof NonNullable<Q>]?: NonNullable<Q>[N] | string | number | null } : never;
  type BodyOf<M extends string, P extends string> = IsUnknown<P> extends true ? any
    : Operation<M, P> extends { requestBody?: infer B } ? Content<NonNullable<B>> : never;
  interface Window {
    // The chart, which index.html loads.
    uPlot: any;
  }
  interface ParentNode {
    // The pages look for elements of HTML only.
    querySelector(selectors: string): HTMLElement | null;
  }
}
export {};
