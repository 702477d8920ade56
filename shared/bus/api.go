package bus

// Subjects of the server's own JetStream API, for the calls that nats.go does
// not offer: a read that only the leader answers, a batch read, a pull whose
// inbox we keep.

// LeaderGet reads one message, answered by the stream's leader.
func LeaderGet(stream string) string { return "$JS.API.STREAM.MSG.GET." + stream }

// DirectGet reads messages, answered by any replica.
func DirectGet(stream string) string { return "$JS.API.DIRECT.GET." + stream }

// MsgDelete removes one message by its sequence.
func MsgDelete(stream string) string { return "$JS.API.STREAM.MSG.DELETE." + stream }

// StreamInfo describes a stream; its answer carries the server's time.
func StreamInfo(stream string) string { return "$JS.API.STREAM.INFO." + stream }

// StreamList describes all streams, or those of a subject, some at a time.
const StreamList = "$JS.API.STREAM.LIST"

// StreamNames lists the names of all streams, some at a time.
const StreamNames = "$JS.API.STREAM.NAMES"

// ConsumerInfo counts what a consumer has left.
func ConsumerInfo(stream, consumer string) string {
	return "$JS.API.CONSUMER.INFO." + stream + "." + consumer
}

// StreamSnapshot asks for a copy of a stream, in chunks to a subject that the
// request names.
func StreamSnapshot(stream string) string { return "$JS.API.STREAM.SNAPSHOT." + stream }

// StreamRestore announces such a copy; the answer says where the chunks go.
func StreamRestore(stream string) string { return "$JS.API.STREAM.RESTORE." + stream }

// PullNext asks a pull consumer for messages.
func PullNext(stream, consumer string) string {
	return "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + consumer
}

// StreamPurge removes all messages of a filter.
func StreamPurge(stream string) string { return "$JS.API.STREAM.PURGE." + stream }

// CheckFilter is the filter of a purge that removes nothing: no stream has this
// subject. The answer names a failed write that the server keeps of the stream.
const CheckFilter = "none"

// PendingHeader counts the messages that follow the message of a batch read.
const PendingHeader = "Nats-Num-Pending"

// upToHeader is the sequence up to which the answer to a read of last messages has all.
const upToHeader = "Nats-UpTo-Sequence"
