"""Pure decision logic and its vocabulary.

What lives here decides and explains; it does not act. Nothing in this package reads a clock, draws a random number,
opens a file or a socket, or knows Spark or Kafka: time and observations are arguments, decisions are return values.
"""
