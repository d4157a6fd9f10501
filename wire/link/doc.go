// Package link has the frames that agents send to each other, codec only.
package link
