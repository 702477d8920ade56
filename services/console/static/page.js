// What only some pages have.

/** Starts what the page needs. */
export function startPage() {}
