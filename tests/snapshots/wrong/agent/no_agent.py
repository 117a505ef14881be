agent = None
