package admin

// BackupWithin is Backup with another patience of its copies.
var BackupWithin = backup
