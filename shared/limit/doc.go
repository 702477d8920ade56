// Package limit decides how many requests an operation of an endpoint may get:
// so many in any 10 s ([Window]) and so many at once. [Gate] keeps both, [Table]
// says which bounds hold, and [Bounds.Raised] and [Bounds.Share] what becomes
// of them when workers run and when several servers answer.
//
// It imports the standard library only and reads no clock of its own.
package limit
