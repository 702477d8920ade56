package streams

// DurablePrefix plus the name of a stream is the core subject on which a
// process asks for everything that was written to the stream so far to be
// fsynced. Only a process whose server leaves that to its clients answers.
const DurablePrefix = "durable."
