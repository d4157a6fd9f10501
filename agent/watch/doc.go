// Package watch turns file system events into hints that are never the truth.
package watch
