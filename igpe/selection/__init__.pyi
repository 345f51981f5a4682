from .rivals import Rivals as Rivals
