"""Small programs that show how a part of Headgate is used. They run as they are, and the tests run them."""
