// Command haagent keeps a live, bootable replica of a RocketMQ broker's log directory.
package main

func main() {}
