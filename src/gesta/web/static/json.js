// JSON without loss: an integer that is too large for JavaScript keeps its digits, also when it is sent back.

/** Return the value of a JSON text. A large integer becomes what `JSON.rawJSON` makes, where a browser has that. */
export function parse(text) {
  const large = JSON.rawJSON && /\d{16}/.test(text);
  return large ? JSON.parse(text, (key, value, { source } = {}) => (Number.isInteger(value) && !Number.isSafeInteger(value) && /^-?\d+$/.test(source ?? "") ? JSON.rawJSON(source) : value)) : JSON.parse(text);
}

/** Return whether a value is an object or a list; false for a large integer, which is an object here. */
export const nested = (value) => typeof value === "object" && value !== null && !JSON.isRawJSON?.(value);

/** Return a value other than an object as its exact text. */
export const exact = (value) => (JSON.isRawJSON?.(value) ? value.rawJSON : String(value));
